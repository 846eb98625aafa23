//! Ways of using files that cost more than they need to are in the summary, from a real run.

use std::fs;

use crate::support::process::finish;
use crate::support::{Scratch, need_fuse, prints, run_in};

#[test]
fn files_read_again_synced_and_polled() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (work, trace) = (scratch.dir("work"), scratch.join("trace.db"));
    fs::write(work.join("page.html"), vec![b'a'; 40_000]).unwrap();
    fs::write(work.join("flag"), "").unwrap();
    let script = "import os\n\
        for i in range(60): open('page.html', 'rb').read()\n\
        log = os.open('log', os.O_WRONLY | os.O_CREAT)\n\
        for i in range(25): os.write(log, b'x' * 9000); os.fsync(log)\n\
        for i in range(150): os.stat('flag')\n";
    finish(run_in(&work, &trace).args(["--", "python3", "-c", script])).expect(0);
    let summary = prints(&work, &["summary", "../trace.db"]);
    let line = |label: &str| {
        let mut lines = summary.lines();
        let found = lines.find(|line| line.trim_start().starts_with(label));
        found.unwrap_or_else(|| panic!("{label}: {summary}"))
    };
    assert!(
        line("read again").contains("page.html 60 times"),
        "{summary}"
    );
    assert!(line("fsync").contains("log 25 times"), "{summary}");
    assert!(
        line("polling").contains("flag looked up 150 times"),
        "{summary}"
    );
}
