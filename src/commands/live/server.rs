//! The web server: a page, the events that fill it, and the report, for those who have the token.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flowtrace_profiler::report::live_html;
use tiny_http::{Header, Method, Request, Response};

use super::board::{Board, News};

/// A line goes to an idle viewer so often, so that a connection that is gone is noticed.
const IDLE: Duration = Duration::from_secs(15);

/// A bound server.
pub(super) struct Server {
    http: tiny_http::Server,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What the connections share.
struct Shared {
    board: Arc<Board>,
    token: String,
    /// Distinguishes the events of this server from those of an earlier one.
    instance: String,
    /// Name of the machine, as far as it is known.
    machine: String,
    port: u16,
}

/// A request that is refused: status and reason.
struct Refused(u16, &'static str);

impl Server {
    pub(super) fn bind(at: (IpAddr, u16), board: Arc<Board>) -> io::Result<Server> {
        let listener = std::net::TcpListener::bind(at)?;
        let address = listener.local_addr()?;
        let http = tiny_http::Server::from_listener(listener, None).map_err(io::Error::other)?;
        let machine = nix::sys::utsname::uname()
            .map(|names| names.nodename().to_string_lossy().to_lowercase())
            .unwrap_or_default();
        let shared = Shared {
            board,
            token: random()?,
            instance: random()?,
            machine,
            port: address.port(),
        };
        Ok(Server {
            http,
            address,
            shared: Arc::new(shared),
        })
    }

    /// The address of the page, with its token.
    pub(super) fn address(&self) -> String {
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => match self.shared.machine.as_str() {
                "" => ip.to_string(),
                name => name.to_owned(),
            },
            IpAddr::V6(ip) => format!("[{ip}]"),
            ip => ip.to_string(),
        };
        format!(
            "http://{host}:{}/?token={}",
            self.shared.port, self.shared.token
        )
    }

    /// Answers requests, each on a thread of its own, for ever.
    pub(super) fn serve(&self) {
        for request in self.http.incoming_requests() {
            let shared = Arc::clone(&self.shared);
            let answer = move || {
                // A viewer that has gone is no failure.
                let _ = shared.answer(request);
            };
            // Without a thread the request gets no answer, and the browser tries again.
            let _ = thread::Builder::new()
                .name("live-viewer".into())
                .spawn(answer);
        }
    }
}

impl Shared {
    fn answer(&self, request: Request) -> io::Result<()> {
        let url = request.url().to_owned();
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        if let Err(Refused(status, why)) = self.check(&request, query) {
            let body = format!("{why}\n");
            return request.respond(with_headers(
                Response::from_string(body).with_status_code(status),
                "text/plain; charset=utf-8",
                "default-src 'none'",
            ));
        }
        match path {
            "/" => match self.board.report().filter(|_| self.board.is_over()) {
                Some(report) => send_report(request, &report),
                None => self.page(request),
            },
            "/report" => match self.board.report() {
                Some(report) => send_report(request, &report),
                None => not_found(request),
            },
            "/state" => request.respond(with_headers(
                Response::from_string(self.board.all()),
                "application/json",
                "default-src 'none'",
            )),
            "/events" => self.events(request),
            _ => not_found(request),
        }
    }

    /// Refuses requests of others: without the token, or under a name that is none of this server. A page of
    /// another site can have its name lead here (DNS rebinding), but not change the name that its requests bear.
    fn check(&self, request: &Request, query: &str) -> Result<(), Refused> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Err(Refused(405, "this server only shows"));
        }
        let host = header(request, "Host").unwrap_or_default();
        if !self.is_own(host) {
            return Err(Refused(
                403,
                "the Host of the request is no name of this server",
            ));
        }
        let given = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("token="));
        match given.is_some_and(|given| is_same(given.as_bytes(), self.token.as_bytes())) {
            true => Ok(()),
            false => Err(Refused(
                403,
                "the token is missing or wrong: use the address that flowtrace printed",
            )),
        }
    }

    /// True for an address or this machine's own name, with the port of this server.
    fn is_own(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<SocketAddr>() {
            return address.port() == self.port;
        }
        let Some((name, port)) = host.rsplit_once(':') else {
            return false;
        };
        let name = name.to_lowercase();
        let is_name = name == "localhost" || !self.machine.is_empty() && name == self.machine;
        is_name && port.parse() == Ok(self.port)
    }

    fn page(&self, request: Request) -> io::Result<()> {
        let nonce = random()?;
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let page = live_html(&self.board.title(), &nonce);
        request.respond(with_headers(
            Response::from_string(page),
            "text/html; charset=utf-8",
            &policy,
        ))
    }

    /// Sends what changes until the viewer goes or the report is there. A viewer that comes back says which
    /// version it has.
    fn events(&self, request: Request) -> io::Result<()> {
        let Some(_viewer) = self.board.viewer() else {
            return request
                .respond(Response::from_string("too many viewers\n").with_status_code(503));
        };
        let last = header(&request, "Last-Event-ID").unwrap_or_default();
        let known = last
            .split_once('-')
            .filter(|(instance, _)| *instance == self.instance);
        let mut version = known
            .and_then(|(_, version)| version.parse().ok())
            .unwrap_or(0);
        // Without a length the answer goes on until the connection closes; a response of the library is sent
        // in chunks of 8 kB, which would come late.
        let mut out = request.into_writer();
        write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nretry: 1000\n\n"
        )?;
        out.flush()?;
        loop {
            match self.board.news(version, IDLE) {
                News::Parts(newer, parts) => {
                    version = newer;
                    write!(out, "id: {}-{version}\ndata: {parts}\n\n", self.instance)?;
                }
                News::Report => {
                    write!(out, "event: report\ndata: {{}}\n\n")?;
                    return out.flush();
                }
                News::Nothing => write!(out, ": idle\n\n")?,
            }
            out.flush()?;
        }
    }
}

fn send_report(request: Request, report: &[u8]) -> io::Result<()> {
    request.respond(with_headers(
        Response::from_data(report),
        "text/html; charset=utf-8",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ))
}

fn not_found(request: Request) -> io::Result<()> {
    request.respond(Response::from_string("there is no such page\n").with_status_code(404))
}

fn with_headers<R: io::Read>(response: Response<R>, kind: &str, policy: &str) -> Response<R> {
    let headers = [
        ("Content-Type", kind),
        ("Content-Security-Policy", policy),
        ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
    ];
    headers.into_iter().fold(
        response,
        |response, (name, value)| match Header::from_bytes(name, value) {
            Ok(header) => response.with_header(header),
            Err(()) => response,
        },
    )
}

fn header<'a>(request: &'a Request, name: &'static str) -> Option<&'a str> {
    let headers = request.headers().iter();
    let mut found = headers.filter(|header| header.field.equiv(name));
    found.next().map(|header| header.value.as_str())
}

/// Compares in the same time wherever they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// 128 random bits in hexadecimal.
fn random() -> io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
