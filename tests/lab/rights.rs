//! Time limits of captures, and the rights that captures need.

use crate::lab_of_hosts::{need_lab, run};
use crate::number;
use crate::support::{self, Scratch};

/// The time limit ends the command with the capture, not the capture alone.
#[test]
fn a_command_is_ended_with_the_time() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"exec "$FLOWTRACE" capture -i lo --seconds 1 -o time.db -- sleep 30"#;
    let begin = std::time::Instant::now();
    let output = run(&scratch, 1, script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(143), "{error}");
    assert!(begin.elapsed().as_secs() < 20);
    assert!(error.contains("ended after 1 s (--seconds)"), "{error}");
}

/// A user without any right, in a user and network namespace of their own.
#[test]
fn nobody_needs_a_right_in_a_namespace_of_his_own() {
    if !need_lab() {
        return;
    }
    let scratch = Scratch::new();
    let user = support::user::User::new(&scratch);
    let flowtrace = user.flowtrace.to_str().unwrap();
    if !user
        .command("unshare")
        .args(["-Urn", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        support::missing("users may not make namespaces");
        return;
    }
    let script = r#"ip link set lo up
        "$0" capture -q -i lo -o own.db -- bash -c 'echo hello > /dev/udp/127.0.0.1/9'"#;
    let output = user
        .command("unshare")
        .args(["-Urn", "sh", "-c", script, flowtrace])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let sql = "SELECT out_bytes FROM flows WHERE proto = 'udp' AND dport = 9";
    assert_eq!(number(&user.home.join("own.db"), sql), 6);
    // Outside of a namespace the capture is refused with a message, and the rest goes on.
    if nix::unistd::geteuid().is_root() {
        let output = user
            .command(flowtrace)
            .args([
                "run",
                "--no-summary",
                "--net",
                "--interface",
                "lo",
                "-o",
                "run.db",
                "--",
                "true",
            ])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        assert!(error.contains("it needs CAP_NET_RAW"), "{error}");
        let sql = "SELECT value FROM losses WHERE counter = 'not_captured'";
        assert_eq!(number(&user.home.join("run.db"), sql), 1);
        let doctor = user.command(flowtrace).arg("doctor").output().unwrap();
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.contains("packets (AF_PACKET)"));
        assert!(
            line.is_some_and(|line| line.contains("it needs CAP_NET_RAW")),
            "{text}"
        );
    }
}
