//! Sampled call stacks for Perfetto, as packets that follow those of a timeline. Numbers of fields are those of
//! `protos/perfetto/trace/`.

use std::collections::HashMap;
use std::io::{self, Write};

use super::super::protobuf::Message;
use crate::model::Workflow;
use crate::stacks::{Located, Samples};

/// Id of the writer of these packets; that of the timeline is 1.
const SEQUENCE: u64 = 2;
/// Flags of a packet: what is known of earlier packets is forgotten, or needed.
const CLEARED: u64 = 1;
const NEEDED: u64 = 2;
/// Fields of a packet.
const PROCESS_TREE: u32 = 2;
const INTERNED: u32 = 12;
const SAMPLE: u32 = 66;

/// Writes the samples.
///
/// # Errors
/// When `out` fails.
pub fn write(samples: &Samples, workflow: &Workflow, out: &mut impl Write) -> io::Result<()> {
    let mut packet = |at_ns: i64, flags: u64, field: u32, content: &Message| -> io::Result<()> {
        let packet = Message::default()
            .number(8, at_ns.max(0) as u64)
            .number(10, SEQUENCE)
            .number(13, flags)
            .message(field, content);
        out.write_all(&Message::default().message(1, &packet).0)
    };
    let interned = |iid: u64, text: &str| Message::default().number(1, iid).text(2, text);
    let mut tables = Message::default();
    let mut modules: HashMap<&str, u64> = HashMap::new();
    for (iid, function) in (1..).zip(&samples.functions) {
        tables = tables.message(5, &interned(iid, &function.name));
        let module = function.module.as_deref().unwrap_or("[unknown]");
        let next = modules.len() as u64 + 1;
        if *modules.entry(module).or_insert(next) == next {
            let mapping = Message::default().number(1, next).number(7, next);
            tables = tables
                .message(17, &interned(next, module))
                .message(19, &mapping);
        }
    }
    let mut frames: HashMap<Located, u64> = HashMap::new();
    let mut used: Vec<u32> = samples.samples.iter().map(|sample| sample.stack).collect();
    used.sort_unstable();
    used.dedup();
    for stack in used {
        let mut callstack = Message::default().number(1, u64::from(stack) + 1);
        for located in samples.frames(stack) {
            let next = frames.len() as u64 + 1;
            let iid = *frames.entry(located).or_insert(next);
            if iid == next {
                let module = samples.function(located.function).module.as_deref();
                let frame = Message::default()
                    .number(1, iid)
                    .number(2, u64::from(located.function) + 1)
                    .number(3, modules[module.unwrap_or("[unknown]")])
                    .number(4, located.address as u64);
                tables = tables.message(6, &frame);
            }
            callstack = callstack.number(2, iid);
        }
        tables = tables.message(7, &callstack);
    }
    packet(0, CLEARED, INTERNED, &tables)?;
    let mut processes = Message::default();
    for process in &workflow.processes {
        let rule = &workflow.images[process.images.end - 1].rule;
        let process = Message::default()
            .number(1, process.pid as u64)
            .text(3, rule);
        processes = processes.message(1, &process);
    }
    packet(0, NEEDED, PROCESS_TREE, &processes)?;
    for sample in &samples.samples {
        let pid = workflow.process(workflow.images[sample.image].process).pid;
        let content = Message::default()
            .number(2, pid as u64)
            .number(3, sample.tid as u64)
            .number(4, u64::from(sample.stack) + 1);
        packet(sample.t_ns, NEEDED, SAMPLE, &content)?;
    }
    Ok(())
}
