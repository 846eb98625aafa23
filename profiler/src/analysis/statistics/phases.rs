//! The use of files by each phase of a workflow (ParaTrac, table 5). A phase is a rule, or a level of the
//! graph of data.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::visit::EdgeRef;

use crate::graph::groups::forks;
use crate::graph::{Dag, Node};
use crate::model::{Access, ProcessId, Programs, Workflow};

/// Numbers of files or processes by use: read only, wrote only, both, neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Read, not changed.
    pub read_only: i64,
    /// Changed, not read.
    pub write_only: i64,
    /// Read and changed.
    pub both: i64,
    /// Only opened or examined.
    pub none: i64,
}

impl Uses {
    fn count(&mut self, reads: bool, writes: bool) {
        *match (reads, writes) {
            (true, false) => &mut self.read_only,
            (false, true) => &mut self.write_only,
            (true, true) => &mut self.both,
            (false, false) => &mut self.none,
        } += 1;
    }
}

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// Name of the rule, or number of the level with its rules.
    pub name: Arc<str>,
    /// Processes, each counted once; by rule, the processes whose last program is of the rule, as in the
    /// tree and the report.
    pub processes: i64,
    /// Programs that processes ran, one after another by `exec`; by level, one for each process.
    pub programs: i64,
    /// CPU time, ns; `None`: not known for any process.
    pub cpu_ns: Option<i64>,
    /// Life times of the processes whose end was seen, ns.
    pub life_ns: i64,
    /// Bytes read from files.
    pub read_bytes: i64,
    /// Bytes written to files.
    pub write_bytes: i64,
    /// Regular files, by their use in the whole phase.
    pub files: Uses,
    /// Processes, by what each did with all its files.
    pub by_process: Uses,
}

impl Phase {
    /// True if a program ran. A script that only became another program has CPU time and did nothing.
    pub fn has_run(&self) -> bool {
        self.programs + self.processes > 0
    }
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// The phases in order.
    pub rows: Vec<Phase>,
    /// The sum of the phases, in which each file counts once.
    pub total: Phase,
    /// Regular files of which a program moved an unknown number of bytes, because only its open was seen.
    pub files_unseen: i64,
    /// Sizes of these files, bytes.
    pub unseen_bytes: i64,
}

/// The phases by rule in the order of their first process. The file accesses of a process belong to the
/// rule of the program that it ran at that time, and the process itself to the rule of its last program.
/// The CPU time of each image belongs to the rule of that image: the time that the copy of a shell used
/// before it became the program is the shell's. Rules whose images all became others at once come last,
/// without a process.
pub fn by_rule(workflow: &Workflow) -> Phases {
    let mut order: Vec<ProcessId> = workflow.process_ids().collect();
    order.sort_by_key(|&id| (workflow.process(id).start_ns, id));
    let mut names = Names::default();
    let programs = Programs::of(workflow);
    let mut phase_of = vec![0; programs.stints.len()];
    for place in order.iter().flat_map(|&id| programs.of_process(id)) {
        phase_of[place] = names.number(&workflow.program(&programs.stints[place]).rule);
    }
    let mut cpu = Vec::new();
    for image in order.iter().flat_map(|&id| workflow.images(id)) {
        if let Some(ns) = image.cpu_ns {
            cpu.push((names.number(&image.rule), ns));
        }
    }
    let accesses = workflow.accesses_by_program(&programs);
    table(
        workflow,
        (&programs, &phase_of),
        accesses,
        names.names,
        cpu.into_iter(),
    )
}

/// Numbers of names, in the order of their first use.
#[derive(Default)]
struct Names {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
}

impl Names {
    fn number(&mut self, name: &Arc<str>) -> usize {
        *self.numbers.entry(Arc::clone(name)).or_insert_with(|| {
            self.names.push(Arc::clone(name));
            self.names.len() - 1
        })
    }
}

/// The phases by level.
pub fn by_level(workflow: &Workflow, dag: &Dag) -> Phases {
    let levels = levels(workflow, dag);
    let count = levels.iter().max().map_or(0, |&last| last + 1);
    let mut rules: Vec<Vec<(&str, i64)>> = vec![Vec::new(); count];
    for id in workflow.process_ids() {
        let of_level = &mut rules[levels[id.0 as usize]];
        let rule = workflow.rule(id).as_ref();
        match of_level.iter_mut().find(|(name, _)| *name == rule) {
            Some((_, count)) => *count += 1,
            None => of_level.push((rule, 1)),
        }
    }
    let names = rules
        .into_iter()
        .enumerate()
        .map(|(level, mut rules)| {
            rules.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
            let shown: Vec<String> = rules
                .iter()
                .take(3)
                .map(|(rule, count)| format!("{rule} ×{count}"))
                .collect();
            let more = match rules.len().saturating_sub(3) {
                0 => String::new(),
                n => format!(" +{n} more"),
            };
            format!("{level}: {}{more}", shown.join(", ")).into()
        })
        .collect();
    let cpu = workflow
        .process_ids()
        .filter_map(|id| Some((levels[id.0 as usize], workflow.process(id).cpu_ns?)));
    let whole = Programs::undivided(workflow);
    let accesses = workflow.accesses.iter();
    let accesses = accesses.map(|access| (access.process.0 as usize, *access));
    table(workflow, (&whole, &levels), accesses, names, cpu)
}

/// The level of every process: the number of processes before it on the longest path of data, and of forks
/// that order.
///
/// A process that is cut into versions has the level of its first version. Processes after a later version
/// are above everything that the version has read. A level with only later versions does not count.
pub fn levels(workflow: &Workflow, dag: &Dag) -> Vec<usize> {
    let orders = forks::orders(dag);
    let mut level = vec![0; dag.graph.node_count()];
    let mut of_process: Vec<Option<usize>> = vec![None; workflow.processes.len()];
    for node in toposort(&dag.graph, None).unwrap_or_default() {
        let before = dag.graph.edges_directed(node, Direction::Incoming);
        let before =
            before.filter(|edge| edge.weight().kind.is_data() || orders[edge.id().index()]);
        let own = before.map(|edge| {
            let from = edge.source();
            level[from.index()] + usize::from(matches!(dag.graph[from], Node::Process { .. }))
        });
        let own = own.max().unwrap_or(0);
        level[node.index()] = own;
        if let Node::Process { id, .. } = dag.graph[node] {
            let first = of_process[id.0 as usize].get_or_insert(own);
            *first = own.min(*first);
        }
    }
    let begun: BTreeSet<usize> = of_process.iter().copied().flatten().collect();
    let begun: Vec<usize> = begun.into_iter().collect();
    let dense = |level| begun.partition_point(|&other| other < level);
    of_process
        .into_iter()
        .map(|level| level.map_or(0, dense))
        .collect()
}

/// The table of phases with these names. `phase_of` has the phase of each program, `accesses` are those of
/// programs, and `cpu` has the CPU time of parts of phases.
fn table(
    workflow: &Workflow,
    (programs, phase_of): (&Programs, &[usize]),
    accesses: impl Iterator<Item = (usize, Access)>,
    names: Vec<Arc<str>>,
    cpu: impl Iterator<Item = (usize, i64)>,
) -> Phases {
    let mut phases: Vec<Phase> = names
        .into_iter()
        .map(|name| Phase {
            name,
            ..Phase::default()
        })
        .collect();
    for (stint, &phase) in programs.stints.iter().zip(phase_of) {
        let process = workflow.process(stint.process);
        let end = process.end_ns.map(|end| stint.to_ns.min(end));
        let end = end.or_else(|| (stint.to_ns != i64::MAX).then_some(stint.to_ns));
        let begin = stint.from_ns.max(process.start_ns);
        phases[phase].programs += 1;
        phases[phase].life_ns += end.map_or(0, |end| end.saturating_sub(begin));
    }
    for (phase, ns) in cpu {
        let sum = &mut phases[phase].cpu_ns;
        *sum = Some(sum.unwrap_or(0).saturating_add(ns));
    }
    let mut did = vec![(false, false); workflow.processes.len()];
    let mut files: Vec<(usize, u32, bool, bool)> = Vec::with_capacity(workflow.accesses.len());
    let mut unseen = BTreeSet::new();
    for (program, access) in accesses {
        let phase = &mut phases[phase_of[program]];
        phase.read_bytes = phase.read_bytes.saturating_add(access.read_bytes);
        phase.write_bytes = phase.write_bytes.saturating_add(access.write_bytes);
        if !workflow.file(access.file).is_regular {
            continue;
        }
        if workflow.file(access.file).only_opens && is_unseen(&access) {
            unseen.insert(access.file);
        }
        let (read, wrote) = (reads(&access), writes(&access));
        let process = programs.stints[program].process.0 as usize;
        did[process].0 |= read;
        did[process].1 |= wrote;
        files.push((phase_of[program], access.file.0, read, wrote));
    }
    for (id, (any_read, any_write)) in workflow.process_ids().zip(did) {
        let last = programs.of_process(id).end - 1;
        let phase = &mut phases[phase_of[last]];
        phase.processes += 1;
        phase.by_process.count(any_read, any_write);
    }
    let mut total = Phase {
        name: "total".into(),
        ..Phase::default()
    };
    files.sort_unstable();
    for same in files.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let read = same.iter().any(|f| f.2);
        let wrote = same.iter().any(|f| f.3);
        phases[same[0].0].files.count(read, wrote);
    }
    files.sort_unstable_by_key(|f| f.1);
    for same in files.chunk_by(|a, b| a.1 == b.1) {
        let read = same.iter().any(|f| f.2);
        let wrote = same.iter().any(|f| f.3);
        total.files.count(read, wrote);
    }
    for phase in &phases {
        total.processes += phase.processes;
        total.programs += phase.programs;
        total.life_ns += phase.life_ns;
        total.cpu_ns = phase
            .cpu_ns
            .map(|cpu| total.cpu_ns.unwrap_or(0).saturating_add(cpu))
            .or(total.cpu_ns);
        total.read_bytes = total.read_bytes.saturating_add(phase.read_bytes);
        total.write_bytes = total.write_bytes.saturating_add(phase.write_bytes);
        total.by_process.read_only += phase.by_process.read_only;
        total.by_process.write_only += phase.by_process.write_only;
        total.by_process.both += phase.by_process.both;
        total.by_process.none += phase.by_process.none;
    }
    let sizes = unseen.iter();
    let sizes = sizes.map(|&file| workflow.file(file).size_bytes.unwrap_or(0));
    Phases {
        rows: phases,
        total,
        files_unseen: unseen.len() as i64,
        unseen_bytes: sizes.fold(0, i64::saturating_add),
    }
}

/// True if the process opened the file for its data, and no row shows that it moved any.
fn is_unseen(access: &Access) -> bool {
    access.reads + access.writes == 0 && access.read_opens + access.write_opens > 0
}

/// True if the process read the file; an open for reading only may have read through a mapping.
fn reads(access: &Access) -> bool {
    access.reads > 0 || access.read_opens > 0 && access.write_opens == 0
}

fn writes(access: &Access) -> bool {
    access.changes > 0 || access.creates > 0
}
