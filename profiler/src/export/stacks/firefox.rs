//! The processed profile format of the Firefox Profiler (<https://profiler.firefox.com>), version 55: a track of
//! each thread.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::model::Workflow;
use crate::stacks::{Located, Sample, Samples};

/// Writes all samples.
///
/// # Errors
/// When `out` fails.
pub fn write(samples: &Samples, workflow: &Workflow, out: &mut impl Write) -> io::Result<()> {
    let run = workflow.runs.first();
    let product = run
        .and_then(|run| run.command.as_deref())
        .unwrap_or("flowtrace");
    let categories = json!([
        {"name": "Other", "color": "grey", "subcategories": ["Other"]},
        {"name": "User", "color": "yellow", "subcategories": ["Other"]},
        {"name": "Kernel", "color": "orange", "subcategories": ["Other"]}
    ]);
    let meta = json!({
        "categories": categories, "debug": false,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "interval": ms(samples.period_ns), "preprocessedProfileVersion": 55, "processType": 0,
        "product": product,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        "startTime": run.and_then(|run| run.started_unix_ns).map_or(0.0, |ns| ns as f64 / 1e6),
        "symbolicated": true, "pausedRanges": [], "version": 24, "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true, "markerSchema": [],
    });
    let mut threads: BTreeMap<(usize, i64), Vec<&Sample>> = BTreeMap::new();
    for sample in &samples.samples {
        threads
            .entry((sample.image, sample.tid))
            .or_default()
            .push(sample);
    }
    write!(
        out,
        "{{\"meta\":{meta},\"libs\":[],\"pages\":[],\"profilerOverhead\":[],\"counters\":[],\"threads\":["
    )?;
    let mut separator = "\n";
    for ((image, tid), own) in threads {
        write!(
            out,
            "{separator}{}",
            thread(samples, workflow, (image, tid), &own)
        )?;
        separator = ",\n";
    }
    writeln!(out, "\n]}}")
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Tables of one thread.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    text_places: HashMap<String, usize>,
    /// Name, file and resource of each function.
    functions: Vec<(usize, Option<usize>, usize)>,
    function_places: HashMap<u32, usize>,
    resources: Vec<usize>,
    resource_places: HashMap<usize, usize>,
    /// Function, line and category of each frame.
    frames: Vec<(usize, Option<i64>, u8)>,
    frame_places: HashMap<Located, usize>,
    /// Caller and frame of each stack.
    stacks: Vec<(Option<usize>, usize)>,
    stack_places: HashMap<(Option<usize>, usize), usize>,
}

impl Tables {
    fn text(&mut self, text: &str) -> usize {
        let next = self.texts.len();
        if let Some(&place) = self.text_places.get(text) {
            return place;
        }
        self.texts.push(text.to_owned());
        self.text_places.insert(text.to_owned(), next);
        next
    }

    fn frame(&mut self, samples: &Samples, located: Located) -> usize {
        if let Some(&place) = self.frame_places.get(&located) {
            return place;
        }
        let own = samples.function(located.function);
        let module = own.module.as_deref().unwrap_or("");
        let function = match self.function_places.get(&located.function) {
            Some(&place) => place,
            None => {
                let name = self.text(&own.name);
                let file = own.file.as_deref().map(|file| self.text(file));
                let library = self.text(module);
                let next = self.resources.len();
                let resource = *self.resource_places.entry(library).or_insert(next);
                if resource == next {
                    self.resources.push(library);
                }
                self.functions.push((name, file, resource));
                self.function_places
                    .insert(located.function, self.functions.len() - 1);
                self.functions.len() - 1
            }
        };
        let category = if own.is_of_kernel() { 2 } else { 1 };
        self.frames.push((function, located.line, category));
        self.frame_places.insert(located, self.frames.len() - 1);
        self.frames.len() - 1
    }

    fn stack(&mut self, samples: &Samples, stack: u32) -> Option<usize> {
        let mut caller = None;
        for located in samples.frames(stack) {
            let key = (caller, self.frame(samples, located));
            let next = self.stacks.len();
            let place = *self.stack_places.entry(key).or_insert(next);
            if place == next {
                self.stacks.push(key);
            }
            caller = Some(place);
        }
        caller
    }
}

fn thread(
    samples: &Samples,
    workflow: &Workflow,
    (image, tid): (usize, i64),
    own: &[&Sample],
) -> Value {
    let image = &workflow.images[image];
    let pid = workflow.process(image.process).pid;
    let mut tables = Tables::default();
    let stacks: Vec<Option<usize>> = own
        .iter()
        .map(|sample| tables.stack(samples, sample.stack))
        .collect();
    let mut before = 0;
    let deltas: Vec<f64> = own
        .iter()
        .map(|sample| ms(sample.t_ns - std::mem::replace(&mut before, sample.t_ns)))
        .collect();
    let (frames, functions) = (&tables.frames, &tables.functions);
    let nulls = |count: usize| vec![Value::Null; count];
    let count = frames.len();
    json!({
        "name": &*image.rule, "processName": format!("{} {pid}", image.rule), "processType": "default",
        "pid": pid.to_string(), "tid": tid, "isMainThread": pid == tid, "pausedRanges": [],
        "processStartupTime": ms(image.start_ns), "processShutdownTime": image.end_ns.map(ms),
        "registerTime": ms(image.start_ns), "unregisterTime": image.end_ns.map(ms),
        "showMarkersInTimeline": false,
        "frameTable": {
            "length": count, "address": vec![-1; count], "inlineDepth": vec![0; count],
            "category": frames.iter().map(|frame| frame.2).collect::<Vec<_>>(),
            "subcategory": vec![0; count],
            "func": frames.iter().map(|frame| frame.0).collect::<Vec<_>>(),
            "nativeSymbol": nulls(count), "innerWindowID": vec![0; count],
            "line": frames.iter().map(|frame| frame.1).collect::<Vec<_>>(), "column": nulls(count),
        },
        "funcTable": {
            "length": functions.len(),
            "name": functions.iter().map(|function| function.0).collect::<Vec<_>>(),
            "isJS": vec![false; functions.len()], "relevantForJS": vec![false; functions.len()],
            "resource": functions.iter().map(|function| function.2).collect::<Vec<_>>(),
            "fileName": functions.iter().map(|function| function.1).collect::<Vec<_>>(),
            "lineNumber": nulls(functions.len()), "columnNumber": nulls(functions.len()),
        },
        "resourceTable": {
            "length": tables.resources.len(), "lib": nulls(tables.resources.len()),
            "name": tables.resources, "host": nulls(tables.resources.len()),
            "type": vec![1; tables.resources.len()],
        },
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "stackTable": {
            "length": tables.stacks.len(),
            "prefix": tables.stacks.iter().map(|stack| stack.0).collect::<Vec<_>>(),
            "frame": tables.stacks.iter().map(|stack| stack.1).collect::<Vec<_>>(),
        },
        "samples": {
            "length": own.len(), "weightType": "samples", "stack": stacks, "timeDeltas": deltas,
            "weight": vec![1; own.len()],
            "threadCPUDelta": vec![samples.period_ns / 1000; own.len()],
        },
        "markers": {
            "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
        },
        "stringArray": tables.texts,
    })
}
