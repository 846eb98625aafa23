//! The adapter behind a device of the test: every request, however malformed, gets one answer.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex};

use flowtrace_schema::{FileLayer, HostId, Recorder};
use nix::errno::Errno;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::callers::TaskTable;
use crate::clock::Clock;
use crate::fs::protocol::abi::OutHeader;
use crate::fs::protocol::{Device, serve};
use crate::fs::{Config, FileTable, Filter, Permission};

/// Requests to send, and the replies that came.
#[derive(Debug, Default)]
struct Script {
    requests: Mutex<VecDeque<Vec<u8>>>,
    replies: Mutex<Vec<OutHeader>>,
}

impl Device for Script {
    fn receive(&self, message: &mut [u8]) -> Result<usize> {
        let next = self.requests.lock().unwrap().pop_front();
        let next = next.ok_or(Errno::ENODEV)?;
        message[..next.len()].copy_from_slice(&next);
        Ok(next.len())
    }

    fn send(&self, message: &[u8]) -> Result<()> {
        let header = OutHeader::read_from_prefix(message).unwrap().0;
        assert_eq!(header.len as usize, message.len());
        self.replies.lock().unwrap().push(header);
        Ok(())
    }
}

fn adapter(directory: &std::path::Path, device: &Arc<dyn Device>) -> Adapter {
    let clock = Clock::start().0;
    let config = Config {
        root: File::open(directory).unwrap().into(),
        seen_path: directory.to_owned(),
        host: HostId(1),
        kernel_passthrough: false,
        log: false,
        cached: false,
        filter: Filter::default(),
        attribute_ttl: Duration::ZERO,
        threads: 1,
        clone_fd: false,
        io_uring: false,
        permission: Permission::Process,
        owner: None,
        hidden: Vec::new(),
        offers: Arc::default(),
        rings: Arc::default(),
    };
    let files = Arc::new(FileTable::new(Recorder::nowhere()));
    let callers = Arc::new(TaskTable::new());
    Adapter {
        passthrough: Arc::new(Passthrough::new(config, files, clock).unwrap()),
        log: Arc::new(Log::new(Recorder::nowhere(), clock, callers, false, false)),
        shared: Arc::new(Shared {
            layer: FileLayer::Direct,
            granted: 0,
            largest_request: 1 << 16,
        }),
        backings: Backings::new(Arc::new(File::open("/dev/null").unwrap().into())),
        locks: Locks::default(),
        retries: retries::pair().0,
        drops: invalidate::pair(Arc::clone(device), 1).0,
        walks: Walks::Kept,
        ttl: Duration::ZERO,
        rings: Arc::default(),
    }
}

fn message(opcode: u32, unique: u64, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode,
        unique,
        nodeid,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        pid: 1,
        total_extlen: 0,
        padding: 0,
    };
    [header.as_bytes(), body].concat()
}

/// Bodies that nearly make sense: small numbers, then names.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0u64..4, Just(1 << 32), any::<u64>()];
    let names = prop::sample::select(vec![
        &b"a\0b\0"[..],
        b"b\0a\0",
        b"c\0",
        b"../x\0",
        b"\0",
        b"",
    ]);
    (prop::collection::vec(number, 0..9), names).prop_map(|(numbers, names)| {
        let numbers: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        [&numbers, names].concat()
    })
}

/// All operations but those that take much space or time of the machine.
fn operation() -> impl Strategy<Value = u32> {
    (0u32..56).prop_filter("costly", |op| {
        ![opcode::FALLOCATE, opcode::SYNCFS].contains(op)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_request_gets_one_answer(
        requests in prop::collection::vec((operation(), 0u64..200, body()), 1..40),
    ) {
        const SILENT: [u32; 4] = [
            opcode::FORGET,
            opcode::BATCH_FORGET,
            opcode::INTERRUPT,
            opcode::NOTIFY_REPLY,
        ];
        let outside = tempfile::tempdir().unwrap();
        let directory = outside.path().join("directory");
        std::fs::create_dir(&directory).unwrap();
        let script = Arc::new(Script::default());
        let mut expected = Vec::new();
        for (unique, (operation, node, body)) in (1..).zip(&requests) {
            // Odd numbers are the root, where most effects are possible.
            let node = if node % 2 == 1 { 1 } else { node / 2 };
            let message = message(*operation, unique, node, body);
            script.requests.lock().unwrap().push_back(message);
            // A request for a lock may wait.
            if !SILENT.contains(operation) && *operation != opcode::SETLKW {
                expected.push(unique);
            }
        }
        let device: Arc<dyn Device> = script.clone();
        serve(&device, 1 << 16, &adapter(&directory, &device)).unwrap();
        let replies = script.replies.lock().unwrap();
        for unique in expected {
            let own = replies.iter().filter(|reply| reply.unique == unique);
            prop_assert_eq!(own.count(), 1);
        }
        prop_assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
