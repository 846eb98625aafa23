//! Names of files that programs have open when they begin.

use super::traced;
use crate::support::{PYTHON, need_python};

/// Other processes look up the name of a file while it is made, and then a program starts with that file
/// open. In that case the kernel sometimes forgets the name, and calls the file deleted. At the end the
/// program really removes one file, and replaces one.
const LOOKED_FOR: &str = r"
import multiprocessing, os, subprocess
made = multiprocessing.Value('i', 0, lock=False)
def search():
    while True:
        for place in range(made.value, made.value + 2):
            os.path.exists(f'o{place}')
searchers = [multiprocessing.Process(target=search, daemon=True) for _ in range(2)]
for searcher in searchers: searcher.start()
for place in range(100):
    made.value = place
    with open(f'o{place}', 'w') as output: subprocess.run(['/bin/true'], stdout=output)
for searcher in searchers: searcher.terminate(); searcher.join()
with open('removed', 'w') as output:
    os.remove('removed')
    subprocess.run(['/bin/true'], stdout=output)
with open('replaced', 'w') as output:
    open('other', 'w').close()
    os.rename('other', 'replaced')
    subprocess.run(['/bin/true'], stdout=output)
";

#[test]
fn a_file_has_its_name_though_others_look_for_it_while_it_is_made() {
    if !need_python("multiprocessing") {
        return;
    }
    // Through a mount the searchers make fewer calls: all of them are recorded.
    for options in [&["--layer", "fuse"][..], &["--ptrace"]] {
        let Some(run) = traced(options, &[PYTHON, "-c", LOOKED_FOR]) else {
            return;
        };
        let names = run.trace.rows(
            "SELECT target FROM descriptors JOIN processes USING (upid)
             WHERE command = '/bin/true' AND fd = 1 ORDER BY upid",
        );
        let job = run.scratch.join("job");
        let path = |name: &str| vec![job.join(name).display().to_string()];
        let mut expected: Vec<_> = (0..100).map(|place| path(&format!("o{place}"))).collect();
        expected.extend(["removed (deleted)", "replaced (deleted)"].map(path));
        assert_eq!(names, expected, "{options:?}");
    }
}
