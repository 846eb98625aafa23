//! Channels from calls whose result the kernel reports.

use std::path::Path;

use super::super::descriptors::Object;
use super::super::observer::Tracee;
use super::super::snapshot::ProcessSnapshot;
use super::super::tracepoints::Called;
use super::Channels;

impl Channels {
    /// A process got the channels among these descriptors.
    pub(crate) fn reported(&mut self, tracee: Tracee, called: &Called, now: u64) {
        let Some(made) = called.made.as_deref() else {
            return;
        };
        let found = made.channels().unwrap_or_default();
        {
            let mut registry = self.registry();
            for (inode, socket) in &called.sockets {
                match &called.destination {
                    Some(to) => registry.sends(*inode, to),
                    None => registry.learn(*inode, socket.clone()),
                }
            }
            for one in &found {
                if let Object::Fifo { device, inode } = one.object {
                    let path = made.paths.get(&one.fd).map(Path::new);
                    registry.fifo((device, inode), path, || one.capacity);
                }
            }
        }
        self.add_all(tracee.pid, &found, || made.traffic(), now);
    }
}
