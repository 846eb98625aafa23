//! The line at the start of a run that records less than it would elsewhere, or with other rights.

use flowtrace_schema::ProcessLayer;
use flowtrace_tracer::session::Coverage;

/// What is recorded, why not more, and what would change that.
pub(crate) fn described(coverage: &Coverage) -> String {
    let processes = match coverage.processes {
        ProcessLayer::Ebpf | ProcessLayer::Ptrace | ProcessLayer::Tracepoints => "every process",
        ProcessLayer::Connector => "processes as the kernel announces them",
        _ => "processes that live longer than some 50 ms",
    };
    let directories: Vec<_> = coverage
        .directories
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let files = match (&*directories, coverage.opens) {
        ([], true) => "opens and names of files, no reads and writes".to_owned(),
        ([], false) => "no file calls".to_owned(),
        (directories, _) => format!("every file call below {}", directories.join(", ")),
    };
    let why = match &*coverage.refused {
        [] => String::new(),
        reasons => format!(" ({})", reasons.join("; ")),
    };
    let more = match &coverage.remedy {
        None => String::new(),
        Some(remedy) if coverage.refused.is_empty() => {
            format!("; for other files, bytes of pipes and exact waits: {remedy}")
        }
        Some(remedy) => format!("; for more: {remedy}"),
    };
    format!("records {processes}, and {files}{why}{more}")
}
