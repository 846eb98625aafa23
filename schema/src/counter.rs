//! The counters of a machine: the one list of their names and units. `docs/schema.md` is made
//! from it, and each trace has the ones that it holds in its view `counters`.

macro_rules! counters {
    ($($variant:ident $name:literal $unit:literal $meaning:literal,)*) => {
        /// A counter of a machine, of each device where there are several.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum HostCounter {
            $(#[doc = $meaning] $variant,)*
        }

        impl HostCounter {
            /// All counters.
            pub const ALL: &'static [HostCounter] = &[$(HostCounter::$variant),*];

            /// Name with `*` for the device, unit, and meaning.
            pub const fn describe(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(HostCounter::$variant => ($name, $unit, $meaning)),*
                }
            }
        }
    };
}

counters! {
    CpuUser "cpu.user" "ns" "CPUs in user mode, summed over all of them; steps of 10 ms, as all of cpu",
    CpuNice "cpu.nice" "ns" "CPUs in user mode for processes of low priority",
    CpuSystem "cpu.system" "ns" "CPUs in the kernel",
    CpuInterrupt "cpu.interrupt" "ns" "CPUs serving interrupts",
    CpuIdle "cpu.idle" "ns" "CPUs idle",
    CpuIoWait "cpu.io_wait" "ns" "CPUs idle while a task that ran there waits for a disk; a hint at most",
    CpuSteal "cpu.steal" "ns" "virtual CPUs that were ready while the host ran others",
    Switches "tasks.switches" "count" "context switches",
    Forks "tasks.created" "count" "processes and threads created",
    Running "tasks.running" "present count" "threads on a CPU or waiting for one",
    Blocked "tasks.blocked" "present count" "threads waiting for a disk",
    MemoryAvailable "memory.available" "present bytes" "memory that programs could have without swapping",
    MemoryFree "memory.free" "present bytes" "memory without any use",
    MemoryCached "memory.cached" "present bytes" "page cache and buffers",
    MemoryDirty "memory.dirty" "present bytes" "page cache that waits to be written",
    MemoryWriteback "memory.writeback" "present bytes" "page cache that is being written",
    MajorFaults "memory.major_faults" "count" "page faults that read from storage",
    SwapFree "swap.free" "present bytes" "swap space without use",
    SwapIn "swap.in" "bytes" "memory read back from swap",
    SwapOut "swap.out" "bytes" "memory written to swap",
    DiskReads "disk.*.reads" "count" "reads that the device completed",
    DiskReadBytes "disk.*.read_bytes" "bytes" "bytes it read",
    DiskReadTime "disk.*.read_time" "ns" "time of these reads, summed; steps of 1 ms, as all of disk",
    DiskWrites "disk.*.writes" "count" "writes that it completed",
    DiskWriteBytes "disk.*.write_bytes" "bytes" "bytes it wrote",
    DiskWriteTime "disk.*.write_time" "ns" "time of these writes, summed",
    DiskInFlight "disk.*.in_flight" "present count" "requests that it is serving",
    DiskBusy "disk.*.busy" "ns" "time during which it served any request",
    NetReceiveBytes "net.*.receive_bytes" "bytes" "bytes that the interface received",
    NetReceivePackets "net.*.receive_packets" "count" "packets it received",
    NetReceiveDropped "net.*.receive_dropped" "count" "packets it dropped on reception, those with errors included",
    NetSendBytes "net.*.send_bytes" "bytes" "bytes it sent",
    NetSendPackets "net.*.send_packets" "count" "packets it sent",
    NetSendDropped "net.*.send_dropped" "count" "packets it could not send, those with errors included",
    PressureCpuSome "pressure.cpu.some" "ns" "time during which some task waited for a CPU (Documentation/accounting/psi.rst)",
    PressureIoSome "pressure.io.some" "ns" "time during which some task waited for a disk",
    PressureIoFull "pressure.io.full" "ns" "time during which all that were not idle did",
    PressureMemorySome "pressure.memory.some" "ns" "time during which some task waited for memory",
    PressureMemoryFull "pressure.memory.full" "ns" "time during which all that were not idle did",
    FlowtraceCpu "flowtrace.cpu" "ns" "CPU time of flowtrace itself, all of its threads",
    FlowtraceSamplerCpu "flowtrace.sampler_cpu" "ns" "the part of flowtrace.cpu that sampling the threads took",
}

impl HostCounter {
    /// Name of the counter of a device, or of the machine.
    pub fn name(self, device: Option<&str>) -> String {
        let (name, _, _) = self.describe();
        match device {
            Some(device) => name.replace('*', device),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_have_a_unit() {
        let mut names: Vec<_> = HostCounter::ALL.iter().map(|c| c.describe().0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HostCounter::ALL.len());
        let units = ["ns", "count", "bytes", "present count", "present bytes"];
        assert!(
            HostCounter::ALL
                .iter()
                .all(|c| units.contains(&c.describe().1))
        );
        assert_eq!(HostCounter::DiskBusy.name(Some("sda")), "disk.sda.busy");
    }
}
