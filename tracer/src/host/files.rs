//! The files of /proc about the whole machine. Unexpected content is skipped.

use std::path::Path;

use flowtrace_schema::HostCounter;

/// Takes the value of a counter, of that device if there are several.
pub type Values<'a> = dyn FnMut(HostCounter, Option<&str>, u64) + 'a;

/// Reads the text of one file.
pub(super) type Parser = fn(&str, &mut Values<'_>);

/// Each file with its parser.
pub(super) const ALL: &[(&str, Parser)] = &[
    ("/proc/stat", stat),
    ("/proc/meminfo", meminfo),
    ("/proc/vmstat", vmstat),
    ("/proc/diskstats", diskstats),
    ("/proc/net/dev", net_dev),
    ("/proc/pressure/cpu", pressure_cpu),
    ("/proc/pressure/io", pressure_io),
    ("/proc/pressure/memory", pressure_memory),
];

/// Sectors of /proc/diskstats, whatever the device has.
const SECTOR: u64 = 512;
const MS: u64 = 1_000_000;

/// proc_stat(5).
pub(super) fn stat(text: &str, values: &mut Values<'_>) {
    let tick_ns = crate::linux::tick_ns();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else {
            continue;
        };
        let mut numbers = numbers(rest);
        match name {
            "cpu" => {
                let ticks: Vec<u64> = numbers.collect();
                let sum = |at: &[usize]| at.iter().filter_map(|&i| ticks.get(i)).sum::<u64>();
                for (counter, at) in [
                    (HostCounter::CpuUser, &[0][..]),
                    (HostCounter::CpuNice, &[1]),
                    (HostCounter::CpuSystem, &[2]),
                    (HostCounter::CpuIdle, &[3]),
                    (HostCounter::CpuIoWait, &[4]),
                    (HostCounter::CpuInterrupt, &[5, 6]),
                    (HostCounter::CpuSteal, &[7]),
                ] {
                    values(counter, None, sum(at).saturating_mul(tick_ns));
                }
            }
            "ctxt" => first(&mut numbers, HostCounter::Switches, values),
            "processes" => first(&mut numbers, HostCounter::Forks, values),
            "procs_running" => first(&mut numbers, HostCounter::Running, values),
            "procs_blocked" => first(&mut numbers, HostCounter::Blocked, values),
            _ => {}
        }
    }
}

/// proc_meminfo(5).
pub(super) fn meminfo(text: &str, values: &mut Values<'_>) {
    let mut cached = None;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let Some(bytes) = numbers(rest).next().map(|kib| kib.saturating_mul(1024)) else {
            continue;
        };
        let counter = match name {
            "MemAvailable" => HostCounter::MemoryAvailable,
            "MemFree" => HostCounter::MemoryFree,
            "Dirty" => HostCounter::MemoryDirty,
            "Writeback" => HostCounter::MemoryWriteback,
            "SwapFree" => HostCounter::SwapFree,
            "Buffers" | "Cached" => {
                cached = Some(bytes.saturating_add(cached.unwrap_or(0)));
                continue;
            }
            _ => continue,
        };
        values(counter, None, bytes);
    }
    if let Some(bytes) = cached {
        values(HostCounter::MemoryCached, None, bytes);
    }
}

/// Counters of virtual memory, in pages.
pub(super) fn vmstat(text: &str, values: &mut Values<'_>) {
    let page = procfs::page_size();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else {
            continue;
        };
        let (counter, unit) = match name {
            "pswpin" => (HostCounter::SwapIn, page),
            "pswpout" => (HostCounter::SwapOut, page),
            "pgmajfault" => (HostCounter::MajorFaults, 1),
            _ => continue,
        };
        if let Some(value) = numbers(rest).next() {
            values(counter, None, value.saturating_mul(unit));
        }
    }
}

/// Documentation/admin-guide/iostats.rst; whole devices only, or their partitions would be
/// counted twice.
pub(super) fn diskstats(text: &str, values: &mut Values<'_>) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(name) = words.next() else { continue };
        let fields: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // Most machines have many loop and RAM devices that are not used.
        if fields.len() < 10 || fields.iter().all(|&value| value == 0) || !is_whole(name) {
            continue;
        }
        for (counter, field, unit) in [
            (HostCounter::DiskReads, 0, 1),
            (HostCounter::DiskReadBytes, 2, SECTOR),
            (HostCounter::DiskReadTime, 3, MS),
            (HostCounter::DiskWrites, 4, 1),
            (HostCounter::DiskWriteBytes, 6, SECTOR),
            (HostCounter::DiskWriteTime, 7, MS),
            (HostCounter::DiskInFlight, 8, 1),
            (HostCounter::DiskBusy, 9, MS),
        ] {
            values(counter, Some(name), fields[field].saturating_mul(unit));
        }
    }
}

fn is_whole(device: &str) -> bool {
    // In such a path `/` is written as `!`.
    Path::new("/sys/block")
        .join(device.replace('/', "!"))
        .exists()
}

/// proc_net(5): the interfaces of this network namespace.
pub(super) fn net_dev(text: &str, values: &mut Values<'_>) {
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let fields: Vec<u64> = numbers(rest).collect();
        let (name, Ok(fields)) = (name.trim(), <[u64; 16]>::try_from(fields)) else {
            continue;
        };
        for (counter, value) in [
            (HostCounter::NetReceiveBytes, fields[0]),
            (HostCounter::NetReceivePackets, fields[1]),
            (
                HostCounter::NetReceiveDropped,
                fields[2].saturating_add(fields[3]),
            ),
            (HostCounter::NetSendBytes, fields[8]),
            (HostCounter::NetSendPackets, fields[9]),
            (
                HostCounter::NetSendDropped,
                fields[10].saturating_add(fields[11]),
            ),
        ] {
            values(counter, Some(name), value);
        }
    }
}

fn pressure_cpu(text: &str, values: &mut Values<'_>) {
    pressure(text, [Some(HostCounter::PressureCpuSome), None], values);
}

fn pressure_io(text: &str, values: &mut Values<'_>) {
    let counters = [HostCounter::PressureIoSome, HostCounter::PressureIoFull];
    pressure(text, counters.map(Some), values);
}

fn pressure_memory(text: &str, values: &mut Values<'_>) {
    let counters = [
        HostCounter::PressureMemorySome,
        HostCounter::PressureMemoryFull,
    ];
    pressure(text, counters.map(Some), values);
}

/// Documentation/accounting/psi.rst; totals are µs there.
fn pressure(text: &str, [some, full]: [Option<HostCounter>; 2], values: &mut Values<'_>) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let counter = match words.next() {
            Some("some") => some,
            Some("full") => full,
            _ => None,
        };
        let total = words.find_map(|word| word.strip_prefix("total="));
        let total = total.and_then(|total| total.parse::<u64>().ok());
        if let (Some(counter), Some(total)) = (counter, total) {
            values(counter, None, total.saturating_mul(1000));
        }
    }
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_ascii_whitespace()
        .map_while(|word| word.parse().ok())
}

fn first(numbers: &mut impl Iterator<Item = u64>, counter: HostCounter, values: &mut Values<'_>) {
    if let Some(value) = numbers.next() {
        values(counter, None, value);
    }
}

/// Parses any bytes as each of these files.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (_, parser) in ALL {
        parser(&text, &mut |counter, device, _| {
            assert_eq!(counter.describe().0.contains('*'), device.is_some());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(parser: super::Parser, text: &str) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        parser(text, &mut |counter, device, value| {
            found.push((counter.name(device), value));
        });
        found
    }

    #[track_caller]
    fn assert_has(found: &[(String, u64)], name: &str, value: u64) {
        assert!(
            found.contains(&(name.to_owned(), value)),
            "{name}: {found:?}"
        );
    }

    #[test]
    fn cpus() {
        let text = "cpu  10 2 30 400 5 6 7 8 0 0\ncpu0 1 1 1 1\nintr 5 0 0\nctxt 99\n\
                    processes 7\nprocs_running 3\nprocs_blocked 1\n";
        let found = values(stat, text);
        let tick = 1_000_000_000 / procfs::ticks_per_second();
        assert_has(&found, "cpu.user", 10 * tick);
        assert_has(&found, "cpu.interrupt", 13 * tick);
        assert_has(&found, "cpu.steal", 8 * tick);
        assert_has(&found, "tasks.switches", 99);
        assert_has(&found, "tasks.blocked", 1);
    }

    #[test]
    fn memory() {
        let text = "MemAvailable:  8 kB\nBuffers: 1 kB\nCached: 2 kB\nDirty:\nSwapFree: x kB\n";
        let found = values(meminfo, text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_has(&found, "memory.available", 8192);
        assert_has(&found, "memory.cached", 3072);
        assert_eq!(values(vmstat, "pgmajfault 4\npswpin\n").len(), 1);
    }

    #[test]
    fn devices() {
        let whole = std::fs::read_dir("/sys/block")
            .ok()
            .and_then(|mut d| d.next());
        if let Some(Ok(entry)) = whole {
            let name = entry.file_name().into_string().unwrap();
            let text = format!("  8  0 {name} 1 2 3 4 5 6 7 8 9 10 11\n  8  1 no-such 1 2\n");
            let found = values(diskstats, &text);
            assert_eq!(found.len(), 8, "{found:?}");
            assert_has(&found, &format!("disk.{name}.read_bytes"), 3 * 512);
            assert_has(&found, &format!("disk.{name}.busy"), 10 * MS);
        }
        let text = "Inter-|   Receive\n eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n lo: 1 2\n";
        let found = values(net_dev, text);
        assert_eq!(found.len(), 6, "{found:?}");
        assert_has(&found, "net.eth0.receive_dropped", 7);
        assert_has(&found, "net.eth0.send_bytes", 9);
    }

    #[test]
    fn stalls() {
        let text = "some avg10=1.00 avg60=0 avg300=0 total=12\nfull avg10=0 total=x\n";
        assert_eq!(
            values(pressure_io, text),
            [("pressure.io.some".to_owned(), 12_000)]
        );
    }
}
