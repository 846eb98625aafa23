//! The page of a run that goes on, as a browser asks for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::PATIENCE;
use super::process::Running;

/// A server of `flowtrace live`, by its address.
pub(crate) struct Page {
    /// Host with port.
    pub(crate) host: String,
    pub(crate) token: String,
}

impl Page {
    /// The page whose address is in a text.
    pub(crate) fn at(text: &str) -> Page {
        let rest = text.trim().rsplit_once("http://").expect("an address").1;
        let (host, query) = rest.split_once("/?token=").expect("a token");
        let token = query.split_whitespace().next().unwrap();
        Page {
            host: host.to_owned(),
            token: token.to_owned(),
        }
    }

    /// The page whose address a command prints on standard error.
    pub(crate) fn of(running: &Running) -> Page {
        let begin = Instant::now();
        loop {
            let said = running.stderr_so_far();
            if said.contains("token=") && said.ends_with('\n') {
                return Page::at(&said);
            }
            assert!(begin.elapsed() < PATIENCE, "{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}/?token={}", self.host, self.token)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let path = format!("{path}?token={}", self.token);
        request(
            &self.host,
            &format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.host),
        )
    }

    pub(crate) fn state(&self) -> Value {
        let (status, body) = self.get("/state");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The state once it is as wanted.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let state = self.state();
            if wanted(&state) {
                return state;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}: {state:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The report, once the page has become that.
    pub(crate) fn report(&self) -> String {
        let begin = Instant::now();
        loop {
            let (status, page) = self.get("/");
            assert_eq!(status, 200);
            if page.contains("id=\"data-head\"") {
                return page;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "the page does not become the report"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Status and body of the answer to a request.
pub(crate) fn request(host: &str, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
