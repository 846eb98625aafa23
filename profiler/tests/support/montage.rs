//! Hand-made traces, written through the schema's writer as the tracer would.

use std::path::{Path, PathBuf};

use flowtrace_schema::{
    Call, CallRing, Coverage, Fidelity, FileId, FileKind, FileLayer, FileRecord, HostId,
    HostRecord, Loss, NameRecord, Op, Origin, ProcessEnd, ProcessLayer, ProcessStart, Record,
    Recorder, RunEnd, RunId, RunRecord, TracedDirectory, Upid, Usage, Writer,
};

const MS: u64 = 1_000_000;
const O_WRONLY: u32 = 1;

/// A trace under construction. Times are milliseconds.
pub(crate) struct Script {
    writer: Option<Writer>,
    recorder: Recorder,
    calls: Option<CallRing>,
    upids: u32,
    files: u32,
}

#[allow(dead_code, reason = "each test binary uses a part")]
impl Script {
    /// Begins a run of `command` in `/w`.
    pub(crate) fn new(path: &Path, command: &str) -> Script {
        let (writer, recorder) = Writer::create(path, true).unwrap();
        recorder.record(Record::Host(Box::new(HostRecord {
            id: HostId(1),
            name: "node".into(),
            boot_id: None,
            system: "Linux 6.12 x86_64".into(),
            cpus: Some(2),
            memory_bytes: Some(8 << 30),
            epoch_unix_ns: 1_700_000_000_000_000_000,
        })));
        recorder.record(Record::Run(Box::new(RunRecord {
            id: RunId(1),
            host: HostId(1),
            command: Some(command.into()),
            cwd: "/w".into(),
            version: "0.1.0",
            file_layer: FileLayer::DirectMmap,
            process_layer: ProcessLayer::Ptrace,
        })));
        recorder.record(Record::TracedDirectory(Box::new(TracedDirectory {
            run: RunId(1),
            path: "/w".into(),
            source: None,
            file_layer: FileLayer::DirectMmap,
            fuse_flags: None,
            attribute_ttl_ns: 0,
        })));
        let calls = recorder.call_ring();
        Script {
            writer: Some(writer),
            recorder,
            calls: Some(calls),
            upids: 0,
            files: 0,
        }
    }

    fn image(
        &mut self,
        pid: u32,
        parent: Option<u32>,
        prev: Option<u32>,
        origin: Origin,
        (exe, argv): (&str, &[&str]),
        at: u64,
    ) -> u32 {
        self.upids += 1;
        let mut arguments = Vec::new();
        for argument in argv {
            arguments.extend_from_slice(argument.as_bytes());
            arguments.push(0);
        }
        self.recorder
            .record(Record::ProcessStart(Box::new(ProcessStart {
                upid: Upid(self.upids),
                host: HostId(1),
                pid,
                parent: parent.map(Upid),
                prev: prev.map(Upid),
                origin,
                exe: (!exe.is_empty()).then(|| exe.into()),
                argv: (!argv.is_empty()).then_some(arguments),
                cwd: Some("/w".into()),
                start_ns: at * MS,
            })));
        self.upids
    }

    /// The first process of the run.
    pub(crate) fn root(&mut self, program: (&str, &[&str]), at: u64) -> u32 {
        self.image(100, None, None, Origin::Exec, program, at)
    }

    /// A fork; returns the child's first image.
    pub(crate) fn fork(&mut self, parent: u32, program: (&str, &[&str]), at: u64) -> u32 {
        let pid = 101 + self.upids;
        self.image(pid, Some(parent), None, Origin::Fork, program, at)
    }

    /// An exec; ends `image` and returns the next one of its pid.
    pub(crate) fn exec(
        &mut self,
        image: u32,
        pid: u32,
        parent: Option<u32>,
        program: (&str, &[&str]),
        at: u64,
    ) -> u32 {
        self.end(image, at, None, None, 1);
        self.image(pid, parent, Some(image), Origin::Exec, program, at)
    }

    /// The end of an image with its CPU time.
    pub(crate) fn end(
        &mut self,
        image: u32,
        at: u64,
        code: Option<i32>,
        signal: Option<i32>,
        cpu: u64,
    ) {
        self.recorder
            .record(Record::ProcessEnd(Box::new(ProcessEnd {
                upid: Upid(image),
                end_ns: Some(at * MS),
                exit_code: code,
                exit_signal: signal,
                usage: Usage {
                    user_ns: Some(cpu * MS / 4 * 3),
                    sys_ns: Some(cpu * MS / 4),
                    on_cpu_ns: Some(cpu * MS),
                    read_bytes: Some(u64::from(image) * 100),
                    write_bytes: Some(u64::from(image) * 10),
                    threads: Some(1),
                    ..Usage::default()
                },
            })));
    }

    /// fork, exec of `sh -c`, exec of the program, exit: what make does for a line of a recipe.
    pub(crate) fn job(
        &mut self,
        parent: u32,
        program: (&str, &[&str]),
        at: u64,
        until: u64,
    ) -> u32 {
        let forked = self.fork(parent, ("/usr/bin/make", &["make", "-j2"]), at);
        let pid = 100 + forked;
        let line = program.1.join(" ");
        let shell = ("/usr/bin/dash", &["/bin/sh", "-c", line.as_str()][..]);
        let shell = self.exec(forked, pid, Some(parent), shell, at + 1);
        let image = self.exec(shell, pid, Some(parent), program, at + 2);
        self.end(image, until, Some(0), None, (until - at) * 9 / 10);
        image
    }

    /// A file under its full path.
    pub(crate) fn file(&mut self, path: &str, kind: FileKind, size: u64, at: u64) -> u32 {
        self.files += 1;
        self.recorder.record(Record::File(FileRecord {
            id: FileId(self.files),
            host: HostId(1),
            inode: Some((1, u64::from(self.files))),
            kind,
            size_bytes: Some(size),
            first_ns: at * MS,
            coverage: Coverage::Exact,
        }));
        self.name(self.files, path, at);
        self.files
    }

    /// Another name of a file.
    pub(crate) fn name(&mut self, file: u32, path: &str, at: u64) {
        self.recorder.record(Record::Name(Box::new(NameRecord {
            file: FileId(file),
            directory: None,
            name: path.into(),
            from_ns: at * MS,
        })));
    }

    /// A name ends, as by a rename.
    pub(crate) fn name_end(&mut self, file: u32, path: &str, at: u64) {
        self.recorder.record(Record::NameEnd {
            file: FileId(file),
            directory: FileId(0),
            name: path.into(),
            at_ns: at * MS,
        });
    }

    /// One call of 100 microseconds that moved `length` bytes.
    pub(crate) fn call(
        &mut self,
        image: u32,
        file: u32,
        op: Op,
        flags: Option<u32>,
        length: Option<u64>,
        at: u64,
    ) {
        let call = Call {
            start_ns: at * MS,
            duration_ns: MS / 10,
            upid: Some(Upid(image)),
            tid: None,
            op,
            file: Some(FileId(file)),
            offset: length.map(|_| 0),
            length,
            flags,
            result: length.map_or(0, |l| l as i64),
            fidelity: Fidelity::Exact,
        };
        self.calls.as_mut().expect("before the end").push(call);
    }

    /// Opens and reads a file as `calls` calls of `bytes` each.
    pub(crate) fn read(&mut self, image: u32, file: u32, calls: u64, bytes: u64, at: u64) {
        self.call(image, file, Op::Open, Some(0), None, at);
        for i in 0..calls {
            self.call(image, file, Op::Read, None, Some(bytes), at + i % 3);
        }
    }

    /// Creates and writes a file.
    pub(crate) fn create(&mut self, image: u32, file: u32, calls: u64, bytes: u64, at: u64) {
        self.call(image, file, Op::Create, Some(O_WRONLY), None, at);
        for i in 0..calls {
            self.call(image, file, Op::Write, None, Some(bytes), at + i % 3);
        }
    }

    /// Something was lost.
    pub(crate) fn lost(&mut self, loss: Loss, count: u64) {
        self.recorder.lost(loss, count);
    }

    /// The end of the run.
    pub(crate) fn finish(mut self, at: u64, exit_code: i32) {
        let end = RunEnd {
            id: RunId(1),
            end_ns: at * MS,
            exit_code: Some(exit_code),
            exit_signal: None,
        };
        let writer = self.writer.take().expect("only once");
        drop(self.calls.take());
        writer.finish(&self.recorder, end);
    }

    /// The recorder dies: what was handed over is in the file, but the run has no end.
    pub(crate) fn cut(mut self) {
        let writer = self.writer.take().expect("only once");
        drop(self.calls.take());
        let end = RunEnd {
            id: RunId(99),
            end_ns: 0,
            exit_code: None,
            exit_signal: None,
        };
        writer.finish(&self.recorder, end);
    }
}

/// A mosaic of `tiles` images: make runs mProject, mDiffFit, mBackground, mAdd and helpers; an
/// awk script writes a makefile that make reads while it runs.
pub(crate) fn montage(path: &Path, tiles: u64, is_cut: bool) {
    let mut s = Script::new(path, "make -j2");
    let make = s.root(("/usr/bin/make", &["make", "-j2"]), 0);
    let makefile = s.file("/w/Makefile", FileKind::File, 4000, 0);
    s.file("/w", FileKind::Directory, 0, 0);
    s.read(make, makefile, 1, 4000, 1);
    let mut at = 10;
    let header = s.file("/w/out/region.hdr", FileKind::File, 300, at);
    let hdr = s.job(
        make,
        (
            "/usr/bin/mMakeHdr",
            &["mMakeHdr", "images.tbl", "out/region.hdr"],
        ),
        at,
        at + 20,
    );
    s.create(hdr, header, 1, 300, at + 5);
    at += 30;
    let mut projected = Vec::new();
    for tile in 0..tiles {
        let input = s.file(
            &format!("/w/in/t{tile:02}.fits"),
            FileKind::File,
            2_000_000,
            at,
        );
        let output = s.file(
            &format!("/w/out/proj/t{tile:02}.fits"),
            FileKind::File,
            2_500_000,
            at,
        );
        let name = format!("in/t{tile:02}.fits");
        let job = s.job(
            make,
            (
                "/usr/bin/mProject",
                &["mProject", "-X", &name, "out/proj", "out/region.hdr"],
            ),
            at,
            at + 900 + tile * 7,
        );
        s.read(job, header, 1, 300, at + 3);
        s.read(job, input, 20, 100_000, at + 4);
        s.create(job, output, 25, 100_000, at + 700);
        projected.push(output);
        at += 450;
    }
    at += 1000;
    let table = s.file("/w/out/pimages.tbl", FileKind::File, 900, at);
    let job = s.job(
        make,
        (
            "/usr/bin/mImgtbl",
            &["mImgtbl", "out/proj", "out/pimages.tbl"],
        ),
        at,
        at + 60,
    );
    for &file in &projected {
        s.read(job, file, 2, 2880, at + 10);
    }
    s.create(job, table, 1, 900, at + 50);
    at += 70;
    // make forks a shell that opens the output, then becomes awk.
    let forked = s.fork(make, ("/usr/bin/make", &["make", "-j2"]), at);
    let shell = s.exec(
        forked,
        100 + forked,
        Some(make),
        (
            "/usr/bin/dash",
            &[
                "/bin/sh",
                "-c",
                "awk -f d.awk out/pimages.tbl > out/diffs.mk",
            ],
        ),
        at + 1,
    );
    let rules = s.file("/w/out/diffs.mk", FileKind::File, 700, at + 2);
    s.call(shell, rules, Op::Create, Some(O_WRONLY), None, at + 2);
    let awk = s.exec(
        shell,
        100 + forked,
        Some(make),
        ("/usr/bin/mawk", &["awk", "-f", "d.awk", "out/pimages.tbl"]),
        at + 3,
    );
    s.read(awk, table, 1, 900, at + 4);
    s.call(awk, rules, Op::Write, None, Some(700), at + 6);
    s.end(awk, at + 8, Some(0), None, 4);
    s.read(make, rules, 1, 700, at + 20);
    at += 30;
    let fits = s.file("/w/out/fits.tbl.tmp", FileKind::File, 800, at);
    for pair in projected.windows(2) {
        let diff = s.file(
            &format!("/w/out/diff/d{:02}.fits", pair[0]),
            FileKind::File,
            400_000,
            at,
        );
        let job = s.job(
            make,
            (
                "/usr/bin/mDiffFit",
                &["mDiffFit", "a", "b", "out/region.hdr"],
            ),
            at,
            at + 60,
        );
        s.read(job, header, 1, 300, at + 3);
        s.read(job, pair[0], 25, 100_000, at + 5);
        s.read(job, pair[1], 25, 100_000, at + 9);
        s.create(job, diff, 4, 100_000, at + 30);
        // Appended by each of them: one file, no version of its own for each.
        s.call(job, fits, Op::Write, None, Some(80), at + 50);
        at += 30;
    }
    at += 60;
    s.name_end(fits, "/w/out/fits.tbl.tmp", at);
    s.name(fits, "/w/out/fits.tbl", at);
    let corrections = s.file("/w/out/corrections.tbl", FileKind::File, 500, at);
    let job = s.job(
        make,
        (
            "/usr/bin/mBgModel",
            &["mBgModel", "out/pimages.tbl", "out/fits.tbl"],
        ),
        at,
        at + 40,
    );
    s.read(job, table, 1, 900, at + 5);
    s.read(job, fits, 1, 800, at + 6);
    s.create(job, corrections, 1, 500, at + 30);
    at += 50;
    // A test in a script that may fail.
    let script = s.job(
        make,
        ("/usr/bin/dash", &["/bin/sh", "./check.sh"]),
        at,
        at + 20,
    );
    let grep = s.fork(
        script,
        ("/usr/bin/dash", &["/bin/sh", "./check.sh"]),
        at + 5,
    );
    let grep = s.exec(
        grep,
        100 + grep,
        Some(script),
        ("/usr/bin/grep", &["grep", "-q", "ERROR", "out/fits.tbl"]),
        at + 6,
    );
    s.read(grep, fits, 1, 800, at + 7);
    s.end(grep, at + 9, Some(1), None, 2);
    at += 30;
    let mut corrected = Vec::new();
    for (tile, &file) in projected.iter().enumerate() {
        let output = s.file(
            &format!("/w/out/corr/t{tile:02}.fits"),
            FileKind::File,
            2_500_000,
            at,
        );
        let job = s.job(
            make,
            ("/usr/bin/mBackground", &["mBackground", "a", "b"]),
            at,
            at + 80,
        );
        s.read(job, corrections, 1, 500, at + 3);
        s.read(job, file, 25, 100_000, at + 5);
        s.create(job, output, 25, 100_000, at + 40);
        corrected.push(output);
        at += 45;
    }
    at += 60;
    let mosaic = s.file("/w/out/mosaic.fits", FileKind::File, 12_000_000, at);
    let job = s.job(
        make,
        ("/usr/bin/mAdd", &["mAdd", "out/corr", "out/mosaic.fits"]),
        at,
        at + 700,
    );
    for &file in &corrected {
        s.read(job, file, 25, 100_000, at + 10);
    }
    s.create(job, mosaic, 120, 100_000, at + 300);
    // mAdd updates its header in place, then a viewer reads it.
    let viewer = s.job(
        make,
        (
            "/usr/bin/mViewer",
            &[
                "mViewer",
                "-ct",
                "1",
                "-gray",
                "out/mosaic.fits",
                "-out",
                "out/mosaic.png",
            ],
        ),
        at + 710,
        at + 990,
    );
    let picture = s.file("/w/out/mosaic.png", FileKind::File, 600_000, at + 800);
    s.read(viewer, mosaic, 120, 100_000, at + 720);
    s.create(viewer, picture, 6, 100_000, at + 900);
    at += 1000;
    if is_cut {
        return s.cut();
    }
    s.lost(Loss::UnknownCaller, 3);
    s.end(make, at, Some(0), None, 100);
    s.finish(at + 5, 0);
}

/// A fresh Montage trace of `tiles` tiles and the directory that holds it.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn montage_file(tiles: u64, is_cut: bool) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    montage(&path, tiles, is_cut);
    (directory, path)
}
