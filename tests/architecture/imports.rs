//! Imports between source files: for each file, the items that it names of every other one.
//!
//! A name leads to the file that defines it. A `use` in between draws no arrow, even if it is public and in a
//! parent module. Methods are not followed, and neither is code for tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// Names that a file takes from another one, by the pair of files.
pub(crate) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// Path of a module; the first part is the name of the crate.
type Module = Vec<String>;

/// Items and imports of one module.
#[derive(Default)]
struct Scope {
    file: String,
    items: BTreeSet<String>,
    /// Names that `use` brings in, with the path as written.
    imports: Vec<(String, Vec<String>)>,
    /// Modules of which a `use` takes all names (`::*`).
    globs: Vec<Vec<String>>,
}

/// Source files of a set of crates.
#[derive(Default)]
pub(crate) struct Sources {
    crates: Vec<String>,
    scopes: HashMap<Module, Scope>,
    /// Paths as written, by the module that contains them.
    named: Vec<(Module, Vec<String>)>,
}

impl Sources {
    /// Reads the named crates below a directory; each comes with the file that is its root.
    pub(crate) fn read(root: &Path, crates: &[(String, String)]) -> Sources {
        let mut sources = Sources {
            crates: crates.iter().map(|(name, _)| name.clone()).collect(),
            ..Sources::default()
        };
        for (name, file) in crates {
            sources.read_file(root, Path::new(file), vec![name.clone()], true);
        }
        sources
    }

    /// All source files.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.scopes.values().map(|scope| &*scope.file).collect()
    }

    /// Names that files take from each other.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, path) in &self.named {
            let own = &self.scopes[module].file;
            if let Some((file, name)) = self.defined(module, path, 0)
                && file != *own
            {
                let pair = (own.clone(), file);
                imports.entry(pair).or_default().insert(name);
            }
        }
        imports
    }

    fn read_file(&mut self, root: &Path, file: &Path, module: Module, is_directory: bool) {
        let text = fs::read_to_string(root.join(file))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let below = match is_directory {
            true => file.parent().unwrap_or(file).to_owned(),
            false => file.with_extension(""),
        };
        self.read_items(root, &parsed.items, file, module, &below);
    }

    fn read_items(
        &mut self,
        root: &Path,
        items: &[Item],
        file: &Path,
        module: Module,
        below: &Path,
    ) {
        let mut scope = Scope {
            file: file.display().to_string(),
            ..Scope::default()
        };
        let mut paths = Paths::default();
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let child = [&module[..], std::slice::from_ref(&name)].concat();
                    match (&inner.content, file_of(&inner.attrs)) {
                        (Some((_, items)), _) => {
                            self.read_items(root, items, file, child, &below.join(name));
                        }
                        (None, Some(path)) => {
                            let path = file.parent().unwrap_or(file).join(path);
                            self.read_file(root, &path, child, true);
                        }
                        (None, None) => {
                            let flat = below.join(format!("{name}.rs"));
                            match root.join(&flat).exists() {
                                true => self.read_file(root, &flat, child, false),
                                false => {
                                    self.read_file(
                                        root,
                                        &below.join(name).join("mod.rs"),
                                        child,
                                        true,
                                    );
                                }
                            }
                        }
                    }
                }
                Item::Use(import) => {
                    add_use(&import.tree, &mut Vec::new(), &mut scope);
                    // A name that is only exported again is not used here.
                    if matches!(import.vis, Visibility::Inherited) {
                        paths.visit_item_use(import);
                    }
                }
                other => {
                    scope.items.extend(name_of(other));
                    paths.visit_item(other);
                }
            }
        }
        let named = paths.0.into_iter().map(|path| (module.clone(), path));
        self.named.extend(named);
        self.scopes.insert(module, scope);
    }

    /// File and name of the item that a path in a module leads to; `None` if none of these crates defines it.
    fn defined(&self, module: &Module, path: &[String], depth: usize) -> Option<(String, String)> {
        // Imports can lead in a circle.
        if depth > 12 {
            return None;
        }
        let first = path.first()?;
        let (mut at, mut rest): (Module, _) = match &**first {
            "crate" => (module[..1].to_vec(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                let length = module.len().checked_sub(up).filter(|&length| length > 0)?;
                (module[..length].to_vec(), &path[up..])
            }
            _ if self.crates[1..].contains(first) => (vec![first.clone()], &path[1..]),
            _ => (module.clone(), path),
        };
        loop {
            let scope = self.scopes.get(&at)?;
            let name = rest.first()?;
            if scope.items.contains(name) {
                return Some((scope.file.clone(), name.clone()));
            }
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if self.scopes.contains_key(&child) {
                at = child;
                rest = &rest[1..];
                continue;
            }
            let through = |target: &Vec<String>, rest: &[String]| {
                let whole = [target, rest].concat();
                let is_itself = whole == path && at == *module;
                (!is_itself).then(|| self.defined(&at, &whole, depth + 1))?
            };
            let mut imports = scope.imports.iter();
            if let Some((_, target)) = imports.find(|(alias, _)| alias == name) {
                return through(target, &rest[1..]);
            }
            return scope.globs.iter().find_map(|glob| through(glob, rest));
        }
    }
}

/// Paths that a piece of code names.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'a> Visit<'a> for Paths {
    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.0.push(names.collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'a syn::ItemUse) {
        let mut scope = Scope::default();
        add_use(&import.tree, &mut Vec::new(), &mut scope);
        self.0
            .extend(scope.imports.into_iter().map(|(_, path)| path));
    }

    /// Arguments of a macro are not parsed: names joined by `::` are taken for a path.
    fn visit_macro(&mut self, found: &'a syn::Macro) {
        syn::visit::visit_macro(self, found);
        self.add_tokens(found.tokens.clone());
    }
}

impl Paths {
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.0.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.0.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.0.push(path);
    }
}

fn add_use(tree: &UseTree, path: &mut Vec<String>, scope: &mut Scope) {
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            add_use(&inner.tree, path, scope);
            path.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                add_use(tree, path, scope);
            }
        }
        UseTree::Glob(_) => scope.globs.push(path.clone()),
        UseTree::Name(name) if name.ident == "self" => {
            let alias = path.last().cloned().unwrap_or_default();
            scope.imports.push((alias, path.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            scope
                .imports
                .push((name.clone(), [&path[..], &[name]].concat()));
        }
        UseTree::Rename(renamed) => {
            let mut target = path.clone();
            if renamed.ident != "self" {
                target.push(renamed.ident.to_string());
            }
            scope.imports.push((renamed.rename.to_string(), target));
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn is_for_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.contains("test") && !condition.contains("not (test")
        }
        _ => false,
    })
}

/// The file that a `path` attribute names.
fn file_of(attributes: &[Attribute]) -> Option<PathBuf> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(text.value().into()),
                _ => None,
            },
            _ => None,
        })
}
