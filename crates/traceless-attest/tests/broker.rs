//! A key from a key broker: exchanges with Trustee (its commit 78962cd, feature `coco-as-builtin`,
//! a resource policy that allows or denies all), recorded with this session key.

mod made_up;

use made_up::{Chip, Fields};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::{self, JoinHandle};
use traceless_attest::{
    Attester, Broker, Error, MachineAttester, Result, SampleAttester, SessionKey,
};
use traceless_sys::listen::{self, Clients};
use traceless_sys::machine_evidence::{Machine, MachineEvidence, ReportData};

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

/// A machine of SEV-SNP without a kernel.
#[derive(Debug)]
struct Guest(Vec<u8>);

impl MachineEvidence for Guest {
    fn machine(&self) -> io::Result<Machine> {
        Ok(Machine::Snp)
    }

    fn evidence(&self, report_data: &ReportData) -> io::Result<Vec<u8>> {
        let mut evidence = self.0.clone();
        evidence[0x50..0x90].copy_from_slice(report_data);
        Ok(evidence)
    }
}

/// Trustee reads the fields with the crate `sev`, by its names.
#[test]
fn a_report_has_the_form_that_trustee_takes() {
    let chip = Chip::new();
    let report = chip.report(&Fields::default());
    let sent = |evidence: Vec<u8>| {
        let attester = MachineAttester::new(Box::new(Guest(evidence))).unwrap();
        assert_eq!(attester.kind(), "snp");
        attester.evidence(&[9; 48]).unwrap()
    };
    let with_table = sent([report.clone(), chip.table()].concat());
    let chain = with_table["cert_chain"].as_array().unwrap();
    let kinds: Vec<_> = chain.iter().map(|each| each["cert_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["VCEK", "ASK"]);
    assert_eq!(chain[0]["data"], json!(chip.key_certificate));

    let fields = &with_table["attestation_report"];
    let mut report_data = vec![9; 48];
    report_data.resize(64, 0);
    assert_eq!(fields["report_data"], json!(report_data));
    assert_eq!(fields["chip_id"], json!(vec![0xc4; 64]));
    assert_eq!(fields["signature"]["r"], json!(report[0x2a0..0x2a0 + 72]));
    assert_eq!((&fields["version"], &fields["sig_algo"]), (&json!(3), &json!(1)));
    let [bootloader, tee, snp, microcode] = made_up::TCB;
    let tcb = json!({
        "fmc": null, "bootloader": bootloader, "tee": tee, "snp": snp, "microcode": microcode,
    });
    assert_eq!(fields["reported_tcb"], tcb);
    let names: Vec<_> = fields.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "author_key_digest",
            "chip_id",
            "committed",
            "committed_tcb",
            "cpuid_fam_id",
            "cpuid_mod_id",
            "cpuid_step",
            "current",
            "current_mit_vector",
            "current_tcb",
            "family_id",
            "guest_svn",
            "host_data",
            "id_key_digest",
            "image_id",
            "key_info",
            "launch_mit_vector",
            "launch_tcb",
            "measurement",
            "plat_info",
            "policy",
            "report_data",
            "report_id",
            "report_id_ma",
            "reported_tcb",
            "sig_algo",
            "signature",
            "version",
            "vmpl",
        ]
    );
    // Without its key's certificate, the broker looks it up.
    assert_eq!(sent(report.clone())["cert_chain"], Value::Null);
    let mut turin = report;
    turin[0x188] = 0x1a;
    let tcb = sent(turin)["attestation_report"]["reported_tcb"].clone();
    assert_eq!((&tcb["fmc"], &tcb["bootloader"]), (&json!(bootloader), &json!(tee)));
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
