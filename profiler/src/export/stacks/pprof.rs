//! The format of pprof (`proto/profile.proto` of google/pprof), not compressed, which pprof accepts.

use std::collections::HashMap;
use std::io::{self, Write};

use super::super::protobuf::Message;
use super::Group;
use crate::model::Workflow;
use crate::stacks::{Located, Samples};

/// Texts, each once; the first is empty.
struct Texts {
    all: Vec<String>,
    places: HashMap<String, u64>,
}

impl Texts {
    fn place(&mut self, text: &str) -> u64 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// Writes the samples of all groups, with the rule and the process of each as labels. `kind`: `cpu`, or that of the
/// time in which threads waited.
///
/// # Errors
/// When `out` fails.
pub fn write(
    samples: &Samples,
    workflow: &Workflow,
    groups: &[Group<'_>],
    kind: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut texts = Texts {
        all: Vec::new(),
        places: HashMap::new(),
    };
    texts.place("");
    let value = |name: &str, unit: &str, texts: &mut Texts| {
        Message::default()
            .number(1, texts.place(name))
            .number(2, texts.place(unit))
    };
    let mut profile = Message::default()
        .message(1, &value("samples", "count", &mut texts))
        .message(1, &value(kind, "nanoseconds", &mut texts))
        .message(11, &value(kind, "nanoseconds", &mut texts))
        .number(12, samples.period_ns.unsigned_abs())
        .number(10, workflow.duration_ns().unsigned_abs());
    let mut locations: HashMap<Located, u64> = HashMap::new();
    for group in groups {
        let mut counts: HashMap<(usize, u32), (u64, i64)> = HashMap::new();
        for sample in &group.samples {
            let (count, time_ns) = counts.entry((sample.image, sample.stack)).or_default();
            *count += 1;
            *time_ns += sample.time_ns;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable();
        for ((image, stack), (count, time_ns)) in counts {
            let frames = samples.frames(stack).into_iter().rev();
            let ids: Vec<u64> = frames
                .map(|located| {
                    let next = locations.len() as u64 + 1;
                    *locations.entry(located).or_insert(next)
                })
                .collect();
            let image = &workflow.images[image];
            let rule = Message::default()
                .number(1, texts.place("rule"))
                .number(2, texts.place(&group.name));
            let pid = workflow.process(image.process).pid;
            let process = Message::default()
                .number(1, texts.place("pid"))
                .number(3, pid.unsigned_abs());
            let sample = Message::default()
                .packed(1, ids)
                .packed(2, [count, time_ns.unsigned_abs()])
                .message(3, &rule)
                .message(3, &process);
            profile = profile.message(2, &sample);
        }
    }
    let mut modules: HashMap<&str, u64> = HashMap::new();
    for function in &samples.functions {
        let next = modules.len() as u64 + 1;
        let module = function.module.as_deref().unwrap_or("");
        modules.entry(module).or_insert(next);
    }
    let mut mappings: Vec<(&str, u64)> = modules.iter().map(|(name, id)| (*name, *id)).collect();
    mappings.sort_by_key(|(_, id)| *id);
    for (name, id) in mappings {
        // pprof shall not look for names by itself.
        let named = (7..=10).fold(Message::default().number(1, id), |mapping, field| {
            mapping.number(field, 1)
        });
        profile = profile.message(3, &named.number(5, texts.place(name)));
    }
    let mut located: Vec<(Located, u64)> = locations.into_iter().collect();
    located.sort_by_key(|(_, id)| *id);
    for (located, id) in located {
        let module = samples.function(located.function).module.as_deref();
        let line = Message::default()
            .number(1, u64::from(located.function) + 1)
            .number(2, located.line.unwrap_or(0).unsigned_abs());
        let location = Message::default()
            .number(1, id)
            .number(2, modules[module.unwrap_or("")])
            .number(3, located.address as u64)
            .message(4, &line);
        profile = profile.message(4, &location);
    }
    for (id, function) in (1..).zip(&samples.functions) {
        let name = texts.place(&function.name);
        let function = Message::default()
            .number(1, id)
            .number(2, name)
            .number(3, name)
            .number(4, texts.place(function.file.as_deref().unwrap_or("")));
        profile = profile.message(5, &function);
    }
    for text in &texts.all {
        profile = profile.text(6, text);
    }
    out.write_all(&profile.0)
}
