//! The server: connections, and replies to them.
//!
//! Each connection has one request, a thread and a few seconds. When all places are taken, the
//! oldest connection makes room: a client that waits keeps no other one out.

use crate::deadline::TimedStream;
use crate::host;
use crate::metrics;
use crate::monitor::Monitor;
use crate::report;
use crate::request::{HEAD_LEN_MAX, Head, Refusal};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use traceless_sys::listen::{self, Clients};
use traceless_sys::password::Password;

/// Connections at once.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take for everything.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// The wait after a connection that could not be accepted: the next attempt may fail, too.
const RETRY_TIME: Duration = Duration::from_millis(100);
/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The parts of the page, each with its path and its type.
const PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
];
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Headers of every reply: the page loads nothing from elsewhere, and lies in no other page.
const HEADERS: &str = "Connection: close\r\n\
    Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n";

/// Serves the page of a monitor, until it is dropped.
pub struct Server {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How the clients of a server authenticate, if their password comes from a file, or is random. A
/// random one does for users of this machine only.
pub fn clients(has_password_file: bool) -> Clients {
    if has_password_file {
        return Clients::Authenticated;
    }
    Clients::Anyone { remedy: "give --dashboard-password-file" }
}

impl Server {
    /// Listens on an address of this machine that only its users reach.
    pub fn start(name: &str, monitor: Arc<Monitor>, password: Password) -> io::Result<Self> {
        Self::start_for(name, clients(false), monitor, password)
    }

    /// Listens on an address that these clients may reach.
    pub fn start_for(
        name: &str,
        clients: Clients,
        monitor: Arc<Monitor>,
        password: Password,
    ) -> io::Result<Self> {
        let listener = listen::bind(name, clients)?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let site = Site { name: name.to_owned(), password, monitor };
        let acceptor = Acceptor {
            listener,
            site: Arc::new(site),
            stopping: stopping.clone(),
            places: Arc::default(),
        };
        let thread = std::thread::Builder::new().name("dashboard".to_owned());
        let thread = Some(thread.spawn(move || acceptor.run())?);
        Ok(Self { address, stopping, thread })
    }

    /// The address, with its actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the thread that accepts. If that fails the thread stays until the process ends.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// The connections that are open, from the oldest on.
type Places = Mutex<VecDeque<(u64, TcpStream)>>;

struct Acceptor {
    listener: TcpListener,
    site: Arc<Site>,
    stopping: Arc<AtomicBool>,
    places: Arc<Places>,
}

impl Acceptor {
    fn run(self) {
        for number in 0.. {
            let accepted = self.listener.accept();
            if self.stopping.load(Ordering::Acquire) {
                break;
            }
            match accepted {
                // A connection that gets no thread is closed.
                Ok((stream, _)) => drop(self.serve(number, stream)),
                Err(_) => std::thread::sleep(RETRY_TIME),
            }
        }
        for (_, stream) in lock(&self.places).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn serve(&self, number: u64, stream: TcpStream) -> io::Result<()> {
        let mut places = lock(&self.places);
        if places.len() == CONNECTIONS_MAX
            && let Some((_, oldest)) = places.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        places.push_back((number, stream.try_clone()?));
        drop(places);
        let place = Place { number, places: self.places.clone() };
        let site = self.site.clone();
        let thread = std::thread::Builder::new().name("dashboard".to_owned());
        thread.spawn(move || {
            // The client notices an error by itself.
            let _ = site.converse(TimedStream::new(stream, CONNECTION_TIME));
            drop(place);
        })?;
        Ok(())
    }
}

fn lock(places: &Places) -> std::sync::MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a connection, until it is dropped.
struct Place {
    number: u64,
    places: Arc<Places>,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places).retain(|(number, _)| *number != self.number);
    }
}

/// What is served.
struct Site {
    /// The address that the server was started with.
    name: String,
    password: Password,
    monitor: Arc<Monitor>,
}

struct Reply {
    status: &'static str,
    content_type: &'static str,
    headers: &'static str,
    body: String,
}

impl Reply {
    fn new(content_type: &'static str, body: String) -> Self {
        Self { status: "200 OK", content_type, headers: "", body }
    }

    fn refusal(status: &'static str, text: &str) -> Self {
        Self { status, content_type: TEXT, headers: "", body: format!("{text}\n") }
    }
}

impl Site {
    fn converse(&self, mut stream: TimedStream) -> io::Result<()> {
        let (reply, without_body) = match stream.read_until(HEAD_END, HEAD_LEN_MAX) {
            Ok(head) => self.reply(&head),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let status = "431 Request Header Fields Too Large";
                (Reply::refusal(status, "the head of a request has at most 8 KiB"), false)
            }
            Err(error) => return Err(error),
        };
        let Reply { status, content_type, headers, body } = reply;
        let len = body.len();
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\n{HEADERS}{headers}\
             Content-Type: {content_type}\r\nContent-Length: {len}\r\n\r\n"
        );
        if !without_body {
            bytes.push_str(&body);
        }
        stream.write_all(bytes.as_bytes())?;
        stream.close(HEAD_LEN_MAX);
        Ok(())
    }

    /// The reply to a request, and whether it is sent without its body.
    fn reply(&self, head: &[u8]) -> (Reply, bool) {
        match Head::parse(head) {
            Ok(head) => (self.answer(&head), head.without_body),
            Err(Refusal::Malformed) => {
                (Reply::refusal("400 Bad Request", "this is no request of HTTP/1"), false)
            }
            Err(Refusal::Body) => {
                (Reply::refusal("413 Content Too Large", "no request here has a body"), false)
            }
            Err(Refusal::Method) => {
                let reply = Reply::refusal("405 Method Not Allowed", "only GET and HEAD");
                (Reply { headers: "Allow: GET, HEAD\r\n", ..reply }, false)
            }
        }
    }

    fn answer(&self, head: &Head<'_>) -> Reply {
        if !host::is_served(head.host, &self.name) {
            return Reply::refusal("421 Misdirected Request", "this server has another name");
        }
        // The page itself is the same for everyone, and holds nothing.
        if let Some((_, kind, text)) = PAGE.iter().find(|(path, ..)| *path == head.path) {
            return Reply::new(kind, (*text).to_owned());
        }
        if !head.password.is_some_and(|password| self.password.is(password.as_bytes())) {
            let text = "give the token as Authorization: Bearer TOKEN";
            let reply = Reply::refusal("401 Unauthorized", text);
            return Reply { headers: "WWW-Authenticate: Bearer\r\n", ..reply };
        }
        let first = head.number("after").unwrap_or(0);
        match head.path {
            "/adversary.json" => Reply::new(JSON, report::adversary(&self.monitor, first)),
            "/user.json" => Reply::new(JSON, report::user(&self.monitor, first)),
            "/metrics" => Reply::new(PROMETHEUS, metrics::text(&self.monitor)),
            _ => Reply::refusal(
                "404 Not Found",
                "there are /, /adversary.json, /user.json, /metrics",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_token;
    use std::io::Read;
    use traceless_core::clock::{Clock, Monotonic};
    use traceless_core::rng::SeededRng;

    struct Rig {
        server: Server,
        token: String,
    }

    fn rig() -> Rig {
        let token = random_token(&mut SeededRng::new(5));
        let monitor = Arc::new(Monitor::new("test"));
        let password = Password::new(token.as_bytes()).unwrap();
        let server = Server::start("127.0.0.1:0", monitor, password).unwrap();
        Rig { server, token }
    }

    impl Rig {
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        }

        /// The reply to a head without its end.
        fn send(&self, head: &str) -> String {
            let mut stream = self.connect();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(HEAD_END).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            reply
        }

        fn get(&self, path: &str, token: &str) -> String {
            self.send(&format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}"
            ))
        }
    }

    #[test]
    fn data_are_for_clients_with_the_token_only() {
        let rig = rig();
        let wrong = rig.token.replace(['0', '1', '2'], "3");
        assert_ne!(wrong, rig.token);
        for path in ["/adversary.json", "/user.json?after=3", "/metrics", "/none"] {
            for token in ["", "x", &wrong, &rig.token[1..]] {
                let reply = rig.get(path, token);
                assert!(reply.starts_with("HTTP/1.1 401 "), "{path} {token}: {reply}");
                assert!(
                    reply.contains("WWW-Authenticate: Bearer\r\n") && !reply.contains("schema")
                );
            }
            // A token in the address would end up in histories and logs.
            let query = format!("GET {path}?token={} HTTP/1.1\r\nHost: localhost", rig.token);
            assert!(rig.send(&query).starts_with("HTTP/1.1 401 "));
            let wanted = if path == "/none" { "404" } else { "200" };
            assert!(rig.get(path, &rig.token).starts_with(&format!("HTTP/1.1 {wanted} ")));
        }
        assert!(
            rig.get("/metrics", &rig.token).contains("\ntraceless_user_requests_in_flight 0\n")
        );
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing_from_elsewhere() {
        let rig = rig();
        for (path, kind, text) in PAGE {
            let reply = rig.get(path, "");
            assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(text));
            assert!(reply.contains(&format!("Content-Type: {kind}\r\n")));
            assert!(
                reply.contains("Content-Security-Policy: default-src 'none'; script-src 'self'")
            );
            assert!(!text.contains("https:") && !text.contains("//cdn"), "{path}");
            let head = rig.send(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost"));
            assert!(head.ends_with(&format!("Content-Length: {}\r\n\r\n", text.len())));
        }
    }

    #[test]
    fn requests_under_foreign_names_are_refused() {
        let rig = rig();
        let token = &rig.token;
        for path in ["/", "/user.json"] {
            let head = format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nHost: ");
            let reply = rig.send(&format!("{head}evil.example:{}", rig.server.address().port()));
            assert!(reply.starts_with("HTTP/1.1 421 "), "{reply}");
            let reply = rig.send(&format!("{head}{}", rig.server.address()));
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        }
    }

    #[test]
    fn what_is_no_plain_request_is_refused() {
        let rig = rig();
        for (head, status) in [
            ("GET / HTTP/3\r\nHost: localhost", "400"),
            ("GET / HTTP/1.1", "400"),
            ("POST /metrics HTTP/1.1\r\nHost: localhost", "405"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5", "413"),
        ] {
            let reply = rig.send(head);
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {reply}");
        }
        let huge =
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "y".repeat(2 * HEAD_LEN_MAX));
        let reply = rig.send(&huge);
        assert!(reply.starts_with("HTTP/1.1 431 "), "{reply}");
    }

    #[test]
    fn idle_clients_keep_no_other_one_out_and_are_cut_off() {
        let rig = rig();
        let clock = Monotonic::start();
        let mut idle: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(|_| rig.connect()).collect();
        for stream in &mut idle {
            // The oldest may be closed already.
            let _ = stream.write_all(b"GET / HT");
        }
        assert!(rig.get("/metrics", &rig.token).starts_with("HTTP/1.1 200 "));
        // One byte a second is not progress enough.
        let mut slow = rig.connect();
        let mut sent = slow.write_all(b"GET / HTTP/1.1\r\nX: ");
        while sent.is_ok() && clock.now() < 3 * CONNECTION_TIME.as_nanos() as u64 {
            std::thread::sleep(Duration::from_secs(1));
            sent = slow.write_all(b"y");
        }
        assert!(sent.is_err(), "a slow client is cut off");
        for mut stream in idle {
            let mut reply = String::new();
            assert!(matches!(stream.read_to_string(&mut reply), Ok(0) | Err(_)), "{reply}");
        }
        assert!(rig.get("/metrics", &rig.token).starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn only_loopback_addresses_are_served_without_a_password_file() {
        let start = |clients| {
            let password = Password::new(b"open sesame").unwrap();
            Server::start_for("0.0.0.0:0", clients, Arc::new(Monitor::new("test")), password)
        };
        let error = start(clients(false)).err().unwrap().to_string();
        assert!(error.contains("give --dashboard-password-file"), "{error}");
        let server = start(clients(true)).unwrap();
        let address = (std::net::Ipv4Addr::LOCALHOST, server.address().port());
        assert!(TcpStream::connect(address).is_ok());
        drop(server);
        assert!(TcpStream::connect(address).is_err(), "a dropped server listens no more");
    }
}
