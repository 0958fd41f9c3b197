//! A key from a key broker: exchanges with Trustee (its commit 78962cd, feature `coco-as-builtin`,
//! a resource policy that allows or denies all), recorded with this session key.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::{self, JoinHandle};
use traceless_attest::{Broker, Error, Result, SampleAttester, SessionKey};
use traceless_sys::listen::{self, Clients};

const NAME: &str = "default/traceless/gateway-key";
const KEY: [u8; 32] = [7; 32];

/// Answers requests as they were recorded, and fails if one is another than the recorded one.
struct Replay {
    address: String,
    thread: JoinHandle<()>,
}

impl Replay {
    fn start(exchanges: Vec<Value>) -> Self {
        let anyone = Clients::Anyone { remedy: "a test has no passwords" };
        let listener = listen::bind("127.0.0.1:0", anyone).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let thread = thread::spawn(move || {
            for exchange in exchanges {
                let (mut stream, _) = listener.accept().unwrap();
                let request = Request::read(&mut stream);
                let expected = &exchange["request"];
                assert_eq!(
                    request.line,
                    format!(
                        "{} {} HTTP/1.1",
                        expected["method"].as_str().unwrap(),
                        expected["path"].as_str().unwrap()
                    )
                );
                assert_eq!(request.cookie.as_deref(), expected["cookie"].as_str());
                assert_eq!(request.body.unwrap_or_default(), expected["body"]);
                answer(&mut stream, &exchange);
            }
        });
        Self { address, thread }
    }

    fn ask(self) -> Result<Vec<u8>> {
        let broker = Broker::new(&self.address, &[]).unwrap();
        let key = SessionKey::from_private(&KEY).unwrap();
        let found = broker.resource(&NAME.parse().unwrap(), &SampleAttester, &key);
        drop(broker);
        self.thread.join().expect("the requests are those that were recorded");
        found.map(|key| key.to_vec())
    }
}

struct Request {
    line: String,
    cookie: Option<String>,
    body: Option<Value>,
}

impl Request {
    fn read(stream: &mut TcpStream) -> Self {
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let (mut cookie, mut len) = (None, 0);
        loop {
            let mut header = String::new();
            from.read_line(&mut header).unwrap();
            let Some((name, value)) = header.trim().split_once(": ") else { break };
            match &name.to_ascii_lowercase()[..] {
                "cookie" => cookie = Some(value.to_owned()),
                "content-length" => len = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; len];
        from.read_exact(&mut body).unwrap();
        let body = (len > 0).then(|| serde_json::from_slice(&body).unwrap());
        Self { line: line.trim().to_owned(), cookie, body }
    }
}

fn answer(stream: &mut TcpStream, exchange: &Value) {
    let body = exchange["body"].to_string();
    let cookie = exchange["set_cookie"].as_str();
    let cookie = cookie.map_or(String::new(), |cookie| format!("set-cookie: {cookie}\r\n"));
    let status = exchange["status"].as_u64().unwrap();
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status} Recorded\r\nconnection: close\r\ncontent-length: {len}\r\n{cookie}\r\n"
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
}

fn recorded(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trustee").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn trustee_gives_a_key_to_an_accepted_machine() {
    let key = Replay::start(recorded("accepted.json")).ask().unwrap();
    assert_eq!(key, b"a key of 32 bytes for a gateway.");
}

#[test]
fn trustee_says_why_it_gives_none() {
    let error = Replay::start(recorded("denied.json")).ask().unwrap_err();
    assert!(matches!(error, Error::Broker(_)), "{error}");
    assert!(error.to_string().contains("401") && error.to_string().contains("denied by policy"));
}

/// Each answer with another status, without a field, without the cookie, and as another text.
#[test]
fn damaged_answers_are_refused() {
    let honest = recorded("accepted.json");
    for step in 0..honest.len() {
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut exchanges = honest.clone();
            change(&mut exchanges[step]);
            exchanges.truncate(step + 1);
            Replay::start(exchanges).ask().unwrap_err()
        };
        let failing = changed(&|exchange| exchange["status"] = 503.into());
        assert!(matches!(failing, Error::Unreachable { .. }), "{step}: {failing}");
        let missing = changed(&|exchange| exchange["status"] = 404.into());
        assert!(matches!(missing, Error::Broker(_)), "{step}: {missing}");
        // The token is for other parties; nothing of the second answer is used.
        if step != 1 {
            for body in [Value::Null, "text".into(), serde_json::json!({})] {
                let error = changed(&|exchange| exchange["body"] = body.clone());
                assert!(matches!(error, Error::Broker(_)), "{step}: {error}");
            }
        }
    }
    let mut exchanges = honest;
    exchanges[0]["set_cookie"] = Value::Null;
    exchanges.truncate(1);
    let error = Replay::start(exchanges).ask().unwrap_err();
    assert!(error.to_string().contains("names no session"), "{error}");
}
