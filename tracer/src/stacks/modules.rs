//! The files and other places that have code, each once, however many processes map it.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use super::elf::{self, Code};
use super::files;
use super::records::{Identity, Mapped};

/// Number of a module, counted from 0: that is the kernel.
pub(super) type ModuleId = u32;

/// The kernel.
pub(super) const KERNEL: ModuleId = 0;

/// Most files that are kept open until their symbols are read.
const MOST_OPEN: usize = 200;

/// A file or another place that has code.
#[derive(Debug)]
pub(super) struct Module {
    /// Path as the process saw it, or a name in brackets.
    pub(super) path: Vec<u8>,
    /// Build id, where the kernel found one.
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) source: Source,
    /// The file, while it is open.
    pub(super) file: Option<File>,
    /// Its unwind information; `None`: there is none, or it cannot be read.
    code: Option<Arc<Code>>,
}

/// Where the symbols of a module come from.
#[derive(Debug)]
pub(super) enum Source {
    Kernel,
    /// A file that process `pid` mapped.
    File {
        pid: u32,
        mapped: Box<Mapped>,
    },
    /// Memory of process `pid` that has no file, as of a compiler at run time.
    Memory {
        pid: u32,
    },
    Vdso,
}

/// All modules.
#[derive(Debug)]
pub(super) struct Modules {
    all: Vec<Module>,
    files: HashMap<(Vec<u8>, Identity), ModuleId>,
    /// Memory without a file, by process image.
    memory: HashMap<u32, ModuleId>,
    vdso: Option<ModuleId>,
    open: usize,
    /// First process of the run.
    command: u32,
}

impl Modules {
    pub(super) fn new(command: u32) -> Modules {
        let kernel = Module {
            path: b"[kernel]".to_vec(),
            build_id: None,
            source: Source::Kernel,
            file: None,
            code: None,
        };
        Modules {
            all: vec![kernel],
            files: HashMap::new(),
            memory: HashMap::new(),
            vdso: None,
            open: 0,
            command,
        }
    }

    /// The module of a mapping of process `pid`, whose image is `image`.
    pub(super) fn of(&mut self, mapped: &Mapped, pid: u32, image: u32) -> ModuleId {
        if mapped.path == b"[vdso]" {
            return self.vdso();
        }
        if !is_file(&mapped.path) {
            return self.memory(pid, image);
        }
        let key = (mapped.path.clone(), mapped.identity.clone());
        if let Some(&id) = self.files.get(&key) {
            return id;
        }
        let mut file = files::open(mapped, pid, self.command);
        let code = file.as_ref().and_then(Code::of_file).map(Arc::new);
        if file.is_some() {
            self.open += 1;
            if self.open > MOST_OPEN {
                file = None;
            }
        }
        let id = self.add(Module {
            path: mapped.path.clone(),
            build_id: match &mapped.identity {
                Identity::Build(id) => Some(id.clone()),
                Identity::Inode(..) => None,
            },
            source: Source::File {
                pid,
                mapped: Box::new(mapped.clone()),
            },
            file,
            code,
        });
        self.files.insert(key, id);
        id
    }

    /// The module of memory without a file.
    pub(super) fn memory(&mut self, pid: u32, image: u32) -> ModuleId {
        if let Some(&id) = self.memory.get(&image) {
            return id;
        }
        let id = self.add(Module {
            path: format!("[memory of {pid}]").into_bytes(),
            build_id: None,
            source: Source::Memory { pid },
            file: None,
            code: None,
        });
        self.memory.insert(image, id);
        id
    }

    fn vdso(&mut self) -> ModuleId {
        if let Some(id) = self.vdso {
            return id;
        }
        let id = self.add(Module {
            path: b"[vdso]".to_vec(),
            build_id: None,
            source: Source::Vdso,
            file: None,
            code: elf::vdso().map(Arc::new),
        });
        self.vdso = Some(id);
        id
    }

    fn add(&mut self, module: Module) -> ModuleId {
        self.all.push(module);
        self.all.len() as ModuleId - 1
    }

    pub(super) fn code(&self, id: ModuleId) -> Option<&Arc<Code>> {
        self.all.get(id as usize)?.code.as_ref()
    }

    pub(super) fn get(&self, id: ModuleId) -> Option<&Module> {
        self.all.get(id as usize)
    }

    /// Opens the file of a module again if it had to be closed.
    pub(super) fn reopened(&self, id: ModuleId) -> Option<File> {
        let module = self.all.get(id as usize)?;
        match (&module.file, &module.source) {
            (Some(file), _) => file.try_clone().ok(),
            (None, Source::File { pid, mapped }) => files::open(mapped, *pid, self.command),
            _ => None,
        }
    }
}

/// True for the path of a file, as opposed to memory without one (`//anon`, `[heap]`, shared memory of no
/// name).
fn is_file(path: &[u8]) -> bool {
    let nameless: [&[u8]; 5] = [b"//", b"/memfd:", b"/dev/zero", b"/SYSV", b"anon_inode:"];
    path.first() == Some(&b'/') && !nameless.iter().any(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &str) -> Mapped {
        Mapped {
            start: 0x1000,
            length: 0x1000,
            offset: 0,
            identity: Identity::Inode(0, 0, 1),
            path: path.into(),
        }
    }

    #[test]
    fn each_file_and_the_memory_of_each_image_is_one_module() {
        let mut modules = Modules::new(1);
        let first = modules.of(&mapped("/nowhere/a"), 1, 0);
        assert_eq!(modules.of(&mapped("/nowhere/a"), 2, 1), first);
        assert_ne!(modules.of(&mapped("/nowhere/b"), 2, 1), first);
        let memory = modules.of(&mapped("//anon"), 2, 1);
        assert_eq!(modules.of(&mapped("[heap]"), 2, 1), memory);
        assert_eq!(modules.of(&mapped("/memfd:doublemapper"), 2, 1), memory);
        assert_ne!(modules.of(&mapped("//anon"), 2, 2), memory);
        assert!(modules.code(first).is_none() && modules.reopened(first).is_none());
        let vdso = modules.of(&mapped("[vdso]"), 2, 2);
        assert!(modules.code(vdso).is_some());
    }
}
