//! A command that stopped itself by SIGSTOP, so that only the terminal's shell can continue it.

use std::process::Command;

use super::Case;
use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, PYTHON, need_python};

/// A shell at a terminal, in Python: it waits for its job, which stops, and continues the whole job or the
/// command alone.
const SHELL: &str = r#"
import os, pty, signal, sys
whom, *command = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0: os.execv(command[0], command)
text = b""
while b"." not in text: text += os.read(terminal, 100)
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP, flush=True)
if whom == "all": os.killpg(pid, signal.SIGCONT)
else: os.kill(int(text.split(b".")[0]), signal.SIGCONT)
_, status = os.waitpid(pid, 0)
print("ended", os.waitstatus_to_exitcode(status))
"#;

#[test]
fn the_shell_sees_a_command_that_halts_itself() {
    if !need_python("pty") {
        return;
    }
    Case::each(|case| {
        for whom in ["all", "command"] {
            let mut shell = Command::new(PYTHON);
            shell.current_dir(case.scratch.dir("job"));
            shell.args(["-c", SHELL, whom, FLOWTRACE, "run", "--quiet", "--force"]);
            shell.args(case.options).arg("-o").arg(&case.trace);
            shell.args(["--", "sh", "-c"]);
            shell.arg("echo $$.; kill -STOP $$; echo went on > file; exit 6");
            let finished = finish(&mut shell).expect(0);
            assert_eq!(
                finished.stdout_text(),
                "stopped True\nended 6\n",
                "{:?}, {whom}",
                case.options
            );
            Trace::open_complete(&case.trace);
        }
    });
}
