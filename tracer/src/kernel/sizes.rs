//! The sizes of files that were removed: at the end nobody can ask for them any more.

use flowtrace_schema::{Call, Class, FileId, Op, Record};

use super::by_id::ById;

/// The sizes of files by the recorded calls.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Bytes, by the number of the file.
    by_calls: ById<u64>,
    removed: Vec<FileId>,
}

impl Sizes {
    /// The next call, in the order of time.
    pub(super) fn add(&mut self, call: &Call) {
        let Some(file) = call.file.filter(|_| call.result >= 0) else {
            return;
        };
        if call.op == Op::Truncate {
            self.by_calls.insert(file.0, call.length.unwrap_or(0));
        } else if let Some(offset) = call.offset.filter(|_| writes(call)) {
            let end = offset.saturating_add(call.result.unsigned_abs());
            let size = self.by_calls.entry(file.0).or_default();
            *size = end.max(*size);
        }
    }

    /// A file has no name at the end.
    pub(super) fn removed(&mut self, file: FileId) {
        self.removed.push(file);
    }

    /// The sizes of the removed files that calls have written.
    pub(super) fn of_removed(&self) -> impl Iterator<Item = Record> {
        let sized = |&file: &FileId| {
            let size_bytes = *self.by_calls.get(&file.0)?;
            Some(Record::FileSize { file, size_bytes })
        };
        self.removed.iter().filter_map(sized)
    }
}

/// True if the result of the call is a number of bytes that it wrote.
fn writes(call: &Call) -> bool {
    call.op.class() == Class::Write && call.op != Op::Fallocate && call.result > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowtrace_schema::Fidelity;

    fn call(op: Op, file: u32, offset: Option<u64>, length: Option<u64>, result: i64) -> Call {
        Call {
            start_ns: 1,
            duration_ns: 1,
            upid: None,
            tid: None,
            op,
            file: Some(FileId(file)),
            offset,
            length,
            flags: None,
            result,
            fidelity: Fidelity::Exact,
        }
    }

    #[test]
    fn a_removed_file_has_the_size_that_calls_gave_it() {
        let mut sizes = Sizes::default();
        for call in [
            call(Op::Write, 1, Some(0), Some(100), 100),
            call(Op::Write, 1, Some(100), Some(50), 20),
            call(Op::Write, 1, Some(10), Some(5), 5),
            call(Op::Write, 1, Some(500), Some(5), -28),
            call(Op::Read, 1, Some(200), Some(5), 5),
            call(Op::Write, 2, Some(0), Some(100), 100),
            call(Op::Truncate, 2, None, Some(30), 0),
            call(Op::Write, 3, Some(0), Some(7), 7),
        ] {
            sizes.add(&call);
        }
        sizes.removed(FileId(1));
        sizes.removed(FileId(2));
        sizes.removed(FileId(4));
        let mut found: Vec<_> = sizes
            .of_removed()
            .map(|record| match record {
                Record::FileSize { file, size_bytes } => (file.0, size_bytes),
                other => panic!("{other:?}"),
            })
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(1, 120), (2, 30)]);
    }
}
