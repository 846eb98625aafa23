//! Tests of samples and what is made of them.

use std::sync::Arc;

use super::{Flame, Function, Located, Sample, Samples, Stack};

/// Samples of stacks that are given as functions with their modules, outermost first.
pub(crate) fn samples(stacks: &[&[(&str, &str)]]) -> Samples {
    let mut samples = Samples {
        period_ns: 10,
        samples: Vec::new(),
        waits: Vec::new(),
        functions: Vec::new(),
        stacks: Vec::new(),
        frames: Vec::new(),
    };
    for (at, stack) in (0..).zip(stacks) {
        let mut caller = None;
        for (name, module) in *stack {
            let function = Function {
                name: Arc::from(*name),
                file: name.ends_with(".py").then(|| Arc::from(*name)),
                module: Some(Arc::from(*module)),
                has_symbols: true,
            };
            let known = samples
                .functions
                .iter()
                .position(|other| *other == function);
            let place = known.unwrap_or_else(|| {
                samples.functions.push(function);
                samples.functions.len() - 1
            });
            samples.frames.push(vec![Located {
                function: place as u32,
                line: None,
                address: 0,
            }]);
            samples.stacks.push(Stack {
                caller,
                frame: samples.frames.len() as u32 - 1,
            });
            caller = Some(samples.stacks.len() as u32 - 1);
        }
        samples.samples.push(Sample {
            t_ns: at,
            time_ns: samples.period_ns,
            image: 0,
            tid: 1,
            stack: caller.unwrap_or(0),
        });
    }
    samples
}

#[test]
fn an_interrupt_counts_for_what_it_interrupted_and_an_interpreter_for_what_it_interprets() {
    let main = ("main", "/bin/a");
    let samples = samples(&[
        &[main, ("work", "/bin/a")],
        &[
            main,
            ("work", "/bin/a"),
            ("asm_sysvec_apic_timer_interrupt", "[kernel]"),
            ("tick", "[kernel]"),
        ],
        &[
            main,
            ("read", "/lib/libc.so.6"),
            ("entry_SYSCALL_64", "[kernel]"),
            ("copy", "[kernel]"),
        ],
        &[
            main,
            ("job.py", "[memory of 1]"),
            ("eval", "/lib/libpython3.so"),
            ("add", "/lib/libpython3.so"),
        ],
        &[
            main,
            ("job.py", "[memory of 1]"),
            ("eval", "/lib/libpython3.so"),
            ("dot", "/lib/numpy.so"),
        ],
        &[
            main,
            ("job.py", "[memory of 1]"),
            ("eval", "/lib/libpython3.so"),
            ("memcpy", "/lib/libc.so.6"),
        ],
        &[main, ("memcpy", "/lib/libc.so.6")],
        &[("eval", "/usr/bin/python3")],
    ]);
    let names: Vec<String> = samples
        .samples
        .iter()
        .map(|sample| {
            let located = samples.at_work(sample.stack).unwrap();
            samples.function(located.function).name.to_string()
        })
        .collect();
    assert_eq!(
        names,
        [
            "work", "work", "copy", "job.py", "dot", "job.py", "memcpy", "eval"
        ]
    );
}

#[test]
fn equal_calls_are_one_node() {
    let main = ("main", "/bin/a");
    let samples = samples(&[
        &[main, ("work", "/bin/a")],
        &[main],
        &[main, ("work", "/bin/a"), ("work", "/bin/a")],
    ]);
    let flame = Flame::of(&samples, &samples.samples);
    let nodes: Vec<(i64, i64)> = flame
        .nodes
        .iter()
        .map(|node| (node.own_ns / 10, node.all_ns / 10))
        .collect();
    assert_eq!(nodes, [(1, 3), (1, 2), (1, 1)]);
    assert_eq!((flame.samples, flame.time_ns), (3, 30));
    assert_eq!(flame.functions(2), [0, 1, 1]);
}
