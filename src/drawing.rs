//! Choice of the graph to draw, for `dag` and `export`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use flowtrace_profiler::analysis::statistics::phases::levels;
use flowtrace_profiler::export::drawing::{self, Drawing};
use flowtrace_profiler::export::{cytoscape, dot, gml, graphml};
use flowtrace_profiler::graph::select::{NothingFits, Selection};
use flowtrace_profiler::graph::{self, Dag, groups};
use flowtrace_profiler::load::load;
use flowtrace_profiler::model::{FileIndex, Workflow};
use flowtrace_profiler::rules::names::Names;
use flowtrace_profiler::text::shape;
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::graphviz::{self, Layout};
use crate::output;

mod said;

/// Up to this many nodes every process and file can be drawn on a page.
const READABLE: usize = 60;
/// Up to this many groups a rule graph is drawn whole unless asked otherwise.
const MOST_GROUPS: usize = 150;

/// The part of the workflow to draw, and how closely.
#[derive(Debug, clap::Args)]
pub(crate) struct View {
    /// One node per: process (and file), twins (processes alike with neighbours alike), rule, exe, host, dir
    /// (where it ran), level (of the graph), env:NAME (a recorded variable) [default: process up to 60
    /// nodes, else rule]
    #[arg(long, value_parser = by)]
    by: Option<By>,
    /// Quantity that the width of a line shows, on a logarithmic scale: bytes moved, or bytes per second of
    /// the time in the calls that moved them [default: bytes]
    #[arg(long, value_enum)]
    width: Option<Width>,
    /// Draw only the N heaviest nodes and one that counts the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_nodes: Option<u32>,
    /// Only the part of the run between these seconds, counted as everywhere from the start of the command
    #[arg(long, value_name = "FROM..TO", value_parser = within)]
    within: Option<(i64, i64)>,
    /// Only processes of rules that fit, and their files; may be given several times
    #[arg(long, value_name = "PATTERN", value_parser = any_bytes())]
    rule: Vec<String>,
    /// Only the process with this upid, what it forked, and their files; may be given several times
    #[arg(long, value_name = "UPID")]
    process: Vec<i64>,
    /// Only files that fit, and the processes that used them; may be given several times
    #[arg(long, value_name = "PATTERN", value_parser = any_bytes())]
    file: Vec<String>,
    /// Only the ancestors of these: files or rules that fit, or p and an upid
    #[arg(long, value_name = "NAME", value_parser = any_bytes())]
    ancestors_of: Option<String>,
    /// Only the descendants of these
    #[arg(long, value_name = "NAME", value_parser = any_bytes())]
    descendants_of: Option<String>,
    /// Only the part between these
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], value_parser = any_bytes())]
    between: Vec<String>,
    /// Leave out edges that a longer path implies
    #[arg(long)]
    reduce: bool,
    /// Names of rules, one a line: NAME: PATTERN of the command line, where PATTERN is a glob or a
    /// /regular expression/
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// A name as the trace has it: bytes that are no UTF-8 became U+FFFD there, too.
fn any_bytes() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| text.to_string_lossy().into_owned())
}

/// Quantity that the width of a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Width {
    Bytes,
    Rate,
}

/// Unit that a node stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Process,
    Twins,
    Rule,
    Exe,
    Host,
    Directory,
    Level,
    Variable(String),
}

impl By {
    /// True if all processes of one value are one node, even if that makes cycles: a machine or a job is no
    /// step.
    const fn is_place(&self) -> bool {
        matches!(self, By::Host | By::Directory | By::Variable(_))
    }
}

fn by(text: &str) -> Result<By, String> {
    Ok(match text {
        "process" => By::Process,
        "twins" => By::Twins,
        "rule" => By::Rule,
        "exe" => By::Exe,
        "host" => By::Host,
        "dir" => By::Directory,
        "level" => By::Level,
        _ => match text.strip_prefix("env:").filter(|name| !name.is_empty()) {
            Some(name) => By::Variable(name.into()),
            None => {
                return Err("one of process, twins, rule, exe, host, dir, level, env:NAME".into());
            }
        },
    })
}

fn within(text: &str) -> Result<(i64, i64), String> {
    let seconds = |text: &str, otherwise: i64| match text {
        "" => Ok(otherwise),
        text => match text.trim_end_matches('s').parse::<f64>() {
            Ok(s) if s.is_finite() && s >= 0.0 => Ok((s * 1e9) as i64),
            _ => Err(format!("{text:?} is no time in seconds")),
        },
    };
    let (from, to) = text
        .split_once("..")
        .ok_or("expected FROM..TO in seconds, such as 1.5..3")?;
    let (from, to) = (seconds(from, 0)?, seconds(to, i64::MAX)?);
    if from > to {
        return Err("it ends before it begins".into());
    }
    Ok((from, to))
}

/// Formats of graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Graphviz
    Dot,
    /// The shape of the workflow in a line, and its levels
    Text,
    /// GraphML, for networkx, igraph, Gephi, yEd
    Graphml,
    /// GML, for older tools
    Gml,
    /// Cytoscape JSON
    Cytoscape,
    /// Picture, through Graphviz
    Svg,
    /// Picture, through Graphviz
    Png,
    /// Picture, through Graphviz
    #[value(alias = "jpg")]
    Jpeg,
    /// Picture, through Graphviz
    Pdf,
    /// Picture, through Graphviz
    Ps,
}

impl View {
    /// Fails if an option was given that means nothing here.
    pub(crate) fn refuse(&self, why: &str) -> Result<(), Failure> {
        let is_any = self.by.is_some() || self.width.is_some() || self.max_nodes.is_some();
        if is_any || !self.selection().is_all() {
            return Err(Failure::usage(why));
        }
        Ok(())
    }

    /// The workflow with its rules named as asked.
    pub(crate) fn load(&self, trace: &Trace) -> Result<Workflow, Failure> {
        let mut workflow = load(trace)?;
        if let Some(path) = &self.rules {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("--rules: cannot read {}: {error}", path.display()))
            })?;
            let names = Names::parse(&text).map_err(|error| {
                Failure::usage(format!("--rules: {}: {error}", path.display()))
                    .hint("a line is NAME: PATTERN, as in   align: bwa mem *   or   align: /^bwa (mem|aln) /")
            })?;
            names.apply(&mut workflow);
        }
        Ok(workflow)
    }

    fn selection(&self) -> Selection {
        Selection {
            within_ns: self.within,
            rules: self.rule.clone(),
            subtrees_of: self.process.clone(),
            files: self.file.clone(),
            ancestors_of: self.ancestors_of.clone(),
            descendants_of: self.descendants_of.clone(),
            between: match &self.between[..] {
                [from, to] => Some((from.clone(), to.clone())),
                _ => None,
            },
            is_reduced: self.reduce,
            other_names: HashMap::new(),
        }
    }

    /// Draws the graph and writes it. Without `--by`, `default` decides, or else the size of the graph.
    pub(crate) fn write(
        &self,
        trace: &Trace,
        format: Format,
        default: Option<By>,
        target: &output::Target,
    ) -> Result<(), Failure> {
        let is_drawn = format == Format::Dot || graphviz::picture(&format).is_some();
        if self.width.is_some() && !is_drawn {
            return Err(Failure::usage("--width is for pictures: this format has no lines")
                .hint("the attributes bytes and bytes_per_s of an edge say how much moved and how fast"));
        }
        let workflow = self.load(trace)?;
        let whole = graph::lineage(&workflow);
        let mut selection = self.selection();
        let begins = workflow.begins_ns();
        let of_run =
            |(from, to): (i64, i64)| (from.saturating_add(begins), to.saturating_add(begins));
        selection.within_ns = selection.within_ns.map(of_run);
        let mut dag = if selection.is_all() {
            whole
        } else {
            selection.other_names = other_names(trace, &workflow)?;
            let part = selection.of(&workflow, &whole).map_err(|NothingFits(what)| {
                Failure::usage(what).hint("flowtrace query TRACE \"SELECT path FROM files\" lists files, \"SELECT DISTINCT rule FROM processes\" rules")
            })?;
            said::cut_off(&workflow, &whole, &selection.cut_off(&whole, &part));
            if selection.ancestors_of.is_some() || selection.between.is_some() {
                said::passed_as_arguments(&workflow, &part);
            }
            part
        };
        let mut bytes = Vec::new();
        // Rules are drawn once for each version of a file, but not for an engine that got back a thousand
        // results; other groups are no steps.
        let is_by_step = |by: &Option<By>| {
            matches!(by, None | Some(By::Rule | By::Twins | By::Exe))
                && dag.most_versions() <= graph::MOST_VERSIONS
        };
        let is_text = format == Format::Text;
        let asked = self.by.clone().or(default.filter(|_| !is_text));
        // Unit of a node; the shape in text distinguishes rules by itself.
        let by = asked
            .clone()
            .or_else(|| (!is_text).then(|| what_fits(&dag)));
        let is_place = !is_text && by.as_ref().is_some_and(By::is_place);
        let is_merged = by != Some(By::Process) && !is_place && !is_by_step(&by);
        let is_engine = dag.most_versions() > graph::MOST_VERSIONS;
        if is_merged && is_engine {
            dag = dag.merged(&workflow);
        }
        // Levels are those of the versions.
        let labels = labels(trace, &workflow, &dag, by.as_ref())?;
        if is_merged && !is_engine {
            dag = dag.merged(&workflow);
        }
        if is_text {
            let rules = self.rules_of_text(&workflow, &dag, &labels)?;
            let shape = shape::Shape {
                workflow: &workflow,
                dag: &dag,
                rules: &rules,
                removed: &removed(trace, &workflow)?,
            };
            let text = shape::text(shape, output::width(target.path()));
            output::text(&mut bytes, &text)?;
        } else if let Some(by) = by {
            let drawing = self.draw(trace, (&workflow, &dag), &labels, &by, asked.is_some())?;
            match format {
                Format::Graphml => graphml::write(&drawing, &mut bytes)?,
                Format::Gml => gml::write(&drawing, &mut bytes)?,
                Format::Cytoscape => cytoscape::write(&drawing, &mut bytes)?,
                _ => {
                    let width = match self.width {
                        None | Some(Width::Bytes) => dot::Width::Bytes,
                        Some(Width::Rate) => dot::Width::Rate,
                    };
                    dot::write(&drawing, width, &mut bytes)?;
                }
            }
        }
        if let Some(picture) = graphviz::picture(&format) {
            bytes = graphviz::render(&bytes, Layout::Dot, picture)?;
        }
        output::write_to(target, trace.path(), |out| Ok(out.write_all(&bytes)?))?;
        said::dropped(&workflow, &dag, !is_text);
        Ok(())
    }

    /// The groups of the shape in text.
    fn rules_of_text(
        &self,
        workflow: &Workflow,
        dag: &Dag,
        labels: &[Arc<str>],
    ) -> Result<groups::RuleGraph, Failure> {
        if self.max_nodes.is_some() {
            return Err(Failure::usage(
                "--max-nodes is for pictures: the text has every step",
            ));
        }
        Ok(match &self.by {
            None | Some(By::Rule) => groups::by_rule(workflow, dag),
            Some(By::Twins) => groups::by_twins(workflow, dag),
            Some(By::Process) => {
                return Err(Failure::usage("--by process is no shape")
                    .hint("--format dot has every process; the text is by rule, or --by twins"));
            }
            Some(_) => groups::by_label(workflow, dag, labels),
        })
    }

    fn draw(
        &self,
        trace: &Trace,
        (workflow, dag): (&Workflow, &Dag),
        labels: &[Arc<str>],
        by: &By,
        is_asked: bool,
    ) -> Result<Drawing, Failure> {
        let nodes = dag.graph.node_count();
        let path = crate::explained::critical_path(trace, workflow)?;
        let groups = match by {
            By::Process => None,
            By::Twins => Some(groups::by_twins(workflow, dag)),
            By::Rule => Some(groups::by_rule(workflow, dag)),
            by if by.is_place() => Some(groups::by_place(workflow, dag, labels)),
            _ => Some(groups::by_label(workflow, dag, labels)),
        };
        let mut drawing = match &groups {
            None => drawing::of_processes(workflow, dag),
            Some(groups) => said::of_groups(workflow, dag, groups),
        };
        drawing.mark_critical(workflow, dag, &path, |node| {
            let group = groups
                .as_ref()
                .map_or(node, |groups| groups.group_of[node.index()]);
            group.index()
        });
        let drawn = drawing.nodes.len();
        let limit = match self.max_nodes {
            Some(most) => Some(most as usize),
            None if !is_asked => Some(MOST_GROUPS),
            None => None,
        };
        if let Some(most) = limit {
            drawing.limit(most);
        }
        if !is_asked && *by == By::Rule {
            message!(
                "flowtrace: drew {drawn} groups by rule, because {nodes} processes and files do not fit a page; all of them: --by process"
            );
        }
        if drawing.nodes.len() < drawn {
            let cut = drawn - (drawing.nodes.len() - 1);
            message!(
                "flowtrace: {cut} of {drawn} nodes are only counted, as the node \"+{cut} more\"; draw more: --max-nodes {drawn}"
            );
        }
        Ok(drawing)
    }
}

/// Processes if every process and file fits a page, else rules.
fn what_fits(dag: &Dag) -> By {
    match dag.graph.node_count() <= READABLE {
        true => By::Process,
        false => By::Rule,
    }
}

/// The label by which each process is grouped.
fn labels(
    trace: &Trace,
    workflow: &Workflow,
    dag: &Dag,
    by: Option<&By>,
) -> Result<Vec<Arc<str>>, Failure> {
    let Some(by) = by else {
        return Ok(Vec::new());
    };
    let unknown: Arc<str> = "?".into();
    let of_image = |of: &dyn Fn(&flowtrace_profiler::model::Image) -> Option<Arc<str>>| {
        let label = |id| of(workflow.last_image(id)).unwrap_or_else(|| Arc::clone(&unknown));
        workflow.process_ids().map(label).collect::<Vec<_>>()
    };
    Ok(match by {
        By::Exe => {
            let exe = |id| workflow.joint_name(id, |image| image.exe.clone());
            let label = |id| exe(id).unwrap_or_else(|| Arc::clone(&unknown));
            workflow.process_ids().map(label).collect()
        }
        By::Host => of_image(&|image| image.host.clone()),
        By::Directory => of_image(&|image| image.cwd.clone()),
        By::Variable(name) => {
            let values: std::collections::HashMap<i64, Arc<str>> = trace
                .variables()?
                .into_iter()
                .filter(|row| row.name == *name)
                .map(|row| (row.upid, Arc::from(row.value)))
                .collect();
            if values.is_empty() {
                return Err(Failure::usage(format!("the trace has no variable {name}"))
                    .hint(format!("record it with flowtrace run --env {name}")));
            }
            of_image(&|image| values.get(&image.upid).cloned())
        }
        By::Level => levels(workflow, dag)
            .iter()
            .map(|n| Arc::from(format!("level {n}")))
            .collect(),
        By::Process | By::Twins | By::Rule => Vec::new(),
    })
}

/// Names that files had besides the last, which is the one in the model.
fn other_names(
    trace: &Trace,
    workflow: &Workflow,
) -> Result<HashMap<FileIndex, Vec<String>>, Failure> {
    let mut found: HashMap<FileIndex, Vec<String>> = HashMap::new();
    for name in trace.file_names()? {
        let place = workflow
            .files
            .binary_search_by_key(&name.file_id, |file| file.file_id);
        let Ok(place) = place else { continue };
        if workflow.files[place].path.as_deref() != Some(name.path.as_str()) {
            found
                .entry(FileIndex(place as u32))
                .or_default()
                .push(name.path);
        }
    }
    Ok(found)
}

/// Files that had no name any more at the end.
fn removed(trace: &Trace, workflow: &Workflow) -> Result<HashSet<FileIndex>, Failure> {
    let mut has_name: HashMap<i64, bool> = HashMap::new();
    for name in trace.file_names()? {
        *has_name.entry(name.file_id).or_default() |= name.to_ns.is_none();
    }
    let is_removed = |place: &usize| has_name.get(&workflow.files[*place].file_id) == Some(&false);
    let places = (0..workflow.files.len()).filter(is_removed);
    Ok(places.map(|place| FileIndex(place as u32)).collect())
}
