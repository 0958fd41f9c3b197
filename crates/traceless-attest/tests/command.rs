//! The command `traceless-attest`, and the results that it signs.

mod made_up;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64_simd::URL_SAFE_NO_PAD;
use made_up::{Chip, Fields, NOW};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

struct World {
    chip: Chip,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let (chip, folder) = (Chip::new(), tempfile::tempdir().unwrap());
        let world = Self { chip, folder };
        world.write("evidence", &world.evidence(&Fields::default()));
        world.write("chain/chain.pem", world.chip.chain_pem().as_bytes());
        world.write("root.pem", world.chip.root_pem().as_bytes());
        let policy = format!("measurement = [\"{}\"]\ntcb-min = {{ snp = 20 }}", "a5".repeat(48));
        world.write("policy.toml", format!("[[accept]]\ntee = \"snp\"\n{policy}\n").as_bytes());
        world
    }

    fn evidence(&self, fields: &Fields) -> Vec<u8> {
        [self.chip.report(fields), self.chip.table()].concat()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } =
            Command::new(env!("CARGO_BIN_EXE_traceless-attest"))
                .args(arguments)
                .current_dir(self.folder.path())
                .output()
                .unwrap();
        (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    /// Runs `verify` with the world's policy, root and time, and with more arguments.
    fn verify(&self, more: &[&str]) -> (Option<i32>, String) {
        let now = NOW.to_string();
        let fixed = ["verify", "--policy", "policy.toml", "--at", &now, "--collateral", "chain"];
        self.run(&[&fixed[..], &["--made-up-root", "root.pem"], more].concat())
    }
}

#[test]
fn exit_codes_and_words_say_what_was_found() {
    let world = World::new();
    let (code, said) = world.verify(&["evidence"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("MADE-UP ROOT") && said.ends_with("ACCEPTED\n"), "{said}");

    world.write("old", &world.evidence(&Fields { policy: 1 << 19, ..Fields::default() }));
    let (code, said) = world.verify(&["evidence", "old"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("evidence: accepted") && said.contains("REFUSED: the program is under"));

    let (code, said) = world.verify(&["evidence", "--report-data", &"08".repeat(64)]);
    assert!(code == Some(1) && said.contains("not bound"), "{said}");
    assert_eq!(world.verify(&["evidence", "--report-data", &"07".repeat(64)]).0, Some(0));
    assert_eq!(world.verify(&["evidence", "--report-data", "07"]).0, Some(2));
    assert_eq!(world.verify(&["missing"]).0, Some(4));
    assert_eq!(world.verify(&["evidence", "--collateral", "missing"]).0, Some(4));
    assert_eq!(world.verify(&[]).0, Some(2));
    world.write("noise", &vec![0; 70_000]);
    assert!(world.verify(&["noise"]).1.contains("more than 65536 bytes"));
    world.write("chain/noise", b"noise");
    let (code, said) = world.verify(&["evidence"]);
    assert!(code == Some(4) && said.contains("neither JSON of Intel"), "{said}");
}

#[test]
fn a_policy_that_says_too_little_is_refused() {
    let world = World::new();
    let measurement = "a5".repeat(48);
    let accept = |rest: &str| format!("[[accept]]\ntee = \"snp\"\n{rest}");
    let tdx = |rest: &str| format!("[[accept]]\ntee = \"tdx\"\n{rest}");
    for (policy, reason) in [
        (String::new(), "accept"),
        ("accept = []".into(), "accepts nothing"),
        (accept("tcb-min = {}"), "anybody's program"),
        (accept(&format!("measurement = [\"{measurement}\"]")), "needs tcb-min"),
        (accept("measurement = [\"a5\"]\ntcb-min = {}"), "48 bytes"),
        (accept("measurement = [\"xx\"]\ntcb-min = {}"), "not hexadecimal"),
        (accept("measurment = []"), "unknown field"),
        (
            format!(
                "[[accept]]\ntee = \"tdx\"\nmeasurement = [\"{measurement}\"]\n\
                 registers = {{}}\nallow-migration = true"
            ),
            "of TDX no such machine",
        ),
        (tdx(&format!("measurement = [\"{measurement}\"]")), "TDX needs registers"),
        (
            tdx(&format!("measurement = [\"{measurement}\"]\nregisters = {{ 1 = [] }}")),
            "accepts nothing",
        ),
        (
            tdx(&format!("measurement = [\"{measurement}\"]\nregisters = {{ 4 = [\"00\"] }}")),
            "no register 4",
        ),
        (tdx(&format!("signer = [\"{measurement}\"]\nregisters = {{}}")), "chooses the signer"),
        (
            accept(&format!(
                "measurement = [\"{measurement}\"]\ntcb-min = {{}}\nhost-data = [\"00\"]"
            )),
            "another length",
        ),
        (
            format!(
                "makers = 2\n{}",
                accept(&format!("measurement = [\"{measurement}\"]\ntcb-min = {{}}"))
            ),
            "more makers",
        ),
    ] {
        world.write("policy.toml", policy.as_bytes());
        let (code, said) = world.verify(&["evidence"]);
        assert!(code == Some(2) && said.contains(reason), "{policy}: {said}");
    }
}

#[test]
fn two_makers_must_vouch_where_a_policy_wants_it() {
    let world = World::new();
    let snp = format!(
        "[[accept]]\ntee = \"snp\"\nmeasurement = [\"{}\"]\ntcb-min = {{}}",
        "a5".repeat(48)
    );
    let tdx = format!(
        "[[accept]]\ntee = \"tdx\"\nmeasurement = [\"{}\"]\nregisters = {{}}",
        "00".repeat(48)
    );
    world.write("policy.toml", format!("makers = 2\n{snp}\n{tdx}\n").as_bytes());
    let (code, said) = world.verify(&["evidence", "evidence"]);
    assert!(code == Some(1) && said.contains("of 1 makers, and 2 are required"), "{said}");
}

#[test]
fn results_are_signed_and_say_the_same() {
    let world = World::new();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    world.write("ear.pem", key.serialize_pem().as_bytes());
    // With a made-up root nothing is affirmed.
    for (data, status) in [("07", "none"), ("08", "contraindicated")] {
        let data = data.repeat(64);
        let result = ["--ear", "result.jwt", "--ear-key", "ear.pem", "--nonce", "n-1"];
        let more = [&["evidence", "--report-data", &data][..], &result].concat();
        world.verify(&more);
        let claims = token_claims(&world.folder.path().join("result.jwt"), key.der_bytes());
        assert_eq!(claims["submods"]["snp-0"]["ear_status"], status);
        assert_eq!(claims["eat_nonce"], "n-1");
        assert!(claims["iat"].as_u64().is_some_and(|issued| issued > NOW), "{claims}");
    }
    let (code, said) = world.verify(&["evidence", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &report["verdict"]), (Some(0), &"accepted".into()));
    assert_eq!(report["evidence"][0]["claims"]["tcb"]["snp"], 22);
    let (code, said) = world.run(&["show", "evidence"]);
    assert!(
        code == Some(0) && said.starts_with("NOT VERIFIED") && said.contains("tcb = "),
        "{said}"
    );
}

/// The claims of a token with the right signature.
fn token_claims(file: &Path, public: &[u8]) -> Value {
    let token = fs::read_to_string(file).unwrap();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode_to_vec(signature).unwrap();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public);
    key.verify(message.as_bytes(), &signature).unwrap();
    let (_, claims) = message.split_once('.').unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode_to_vec(claims).unwrap()).unwrap()
}
