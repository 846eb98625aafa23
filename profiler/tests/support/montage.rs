//! A hand-made trace of a small Montage mosaic.

use std::path::{Path, PathBuf};

use flowtrace_schema::{FileKind, Loss, Op};

#[path = "script.rs"]
mod script;

use script::O_WRONLY;
pub(crate) use script::Script;

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
