//! Quotes of real processors: the samples in the package of the crate `dcap-qvl`.

use base64_simd::URL_SAFE_NO_PAD;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use traceless_attest::{
    Claims, Collateral, Error, Policy, Roots, Tcb, Tee, read_unverified, verify,
};

/// The name of a sample, a time at which its collateral is valid, and what is known about it.
const SAMPLES: [(&str, u64, Tee, &str, usize); 3] = [
    ("sgx_quote", 1_750_400_000, Tee::Sgx, "ConfigurationAndSWHardeningNeeded", 2),
    ("tdx_quote", 1_750_400_000, Tee::Tdx, "UpToDate", 0),
    ("tdx_quote_td15ex", 1_792_454_400, Tee::Tdx, "UpToDate", 0),
];

/// The folder of samples: cargo knows where the package was unpacked.
fn samples() -> PathBuf {
    // Packages of other platforms may never have been fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform"];
    let output = Command::new(env!("CARGO")).args(arguments).arg(platform).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "dcap-qvl").unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    manifest.with_file_name("sample")
}

struct Sample {
    quote: Vec<u8>,
    collateral: Collateral,
    /// When its collateral was valid.
    at: u64,
}

impl Sample {
    fn read(name: &str, at: u64) -> Self {
        let folder = samples();
        let mut collateral = Collateral::default();
        collateral.add(&folder.join(format!("{name}_collateral.json"))).unwrap();
        Self { quote: fs::read(folder.join(name)).unwrap(), collateral, at }
    }

    fn verify(&self) -> Result<Claims, Error> {
        verify(&self.quote, &self.collateral, &Roots::default(), self.at)
    }
}

#[test]
fn real_quotes_are_genuine_with_the_collateral_of_their_time() {
    for (name, at, tee, status, advisories) in SAMPLES {
        let mut sample = Sample::read(name, at);
        let claims = sample.verify().unwrap();
        assert_eq!((claims.tee, claims.debug), (tee, false), "{name}");
        let Tcb::Intel { status: found, advisories: applying } = &claims.tcb else { panic!() };
        assert_eq!((&found[..], applying.len()), (status, advisories), "{name}");
        let unverified = read_unverified(&sample.quote).unwrap();
        assert_eq!(unverified.measurement, claims.measurement);
        assert!(claims.collateral_issued.is_some_and(|issued| issued < at));

        sample.at += 90 * 86_400;
        let late = sample.verify().unwrap_err().to_string();
        assert!(late.contains("not verified") && late.contains("xpired"), "{late}");
        sample.at = at - 300 * 86_400;
        assert!(matches!(sample.verify(), Err(Error::NotVerified(_))), "{name}: too early");
    }
}

/// The processor's firmware is older than all that Intel has judged.
#[test]
fn a_quote_of_unknown_firmware_is_refused() {
    let refused = Sample::read("tdx_quote_outdated", 1_771_977_600).verify().unwrap_err();
    assert!(refused.to_string().contains("No matching TCB level"), "{refused}");
}

#[test]
fn quotes_need_collateral_of_their_model_and_the_pinned_root() {
    let (sgx, tdx) = (Sample::read("sgx_quote", 0), Sample::read("tdx_quote", 1_750_400_000));
    for collateral in [&Collateral::default(), &sgx.collateral] {
        let error = verify(&tdx.quote, collateral, &Roots::default(), tdx.at).unwrap_err();
        assert!(matches!(error, Error::CollateralMissing(_)), "{error}");
        assert!(error.to_string().contains("FMSPC"), "{error}");
    }
    let roots = Roots::made_up(vec![vec![0x30, 0]]);
    let error = verify(&tdx.quote, &tdx.collateral, &roots, tdx.at).unwrap_err();
    assert!(error.to_string().contains("Intel's root"), "{error}");

    // A statement of an older version, which names no kind of enclave.
    let text = fs::read_to_string(samples().join("sgx_quote_collateral.json")).unwrap();
    assert!(text.contains("\\\"version\\\":3"), "{text:.200}");
    let older = text.replace("\\\"version\\\":3", "\\\"version\\\":2");
    let reason = Collateral::default().add_bytes(older.as_bytes()).unwrap_err();
    assert!(reason.contains("version 3 is needed"), "{reason}");

    // A chain of Intel that ends below its root.
    let text = fs::read(samples().join("tdx_quote_collateral.json")).unwrap();
    let mut fields: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let chain = fields["tcb_info_issuer_chain"].as_str().unwrap();
    let end = "-----END CERTIFICATE-----";
    let signer = chain.split_inclusive(end).next().unwrap().to_owned();
    fields["tcb_info_issuer_chain"] = signer.into();
    let mut collateral = Collateral::default();
    collateral.add_bytes(fields.to_string().as_bytes()).unwrap();
    let error = verify(&tdx.quote, &collateral, &Roots::default(), tdx.at).unwrap_err();
    assert!(error.to_string().contains("Intel's root"), "{error}");
}

/// One bit of each byte of the first quote, of each fifth of the rest, and each length.
#[test]
fn changed_quotes_are_refused() {
    for ((name, at, ..), step) in SAMPLES.into_iter().zip([1, 5, 5]) {
        let mut sample = Sample::read(name, at);
        let honest = sample.verify().unwrap();
        let signed = sample.quote.len();
        for byte in (0..signed).step_by(step) {
            sample.quote[byte] ^= 1 << (byte % 8);
            // The tail has lengths, padding and the line ends of certificates.
            if let Ok(claims) = sample.verify() {
                assert!(byte >= 632 && claims == honest, "{name}, byte {byte}");
            }
            sample.quote[byte] ^= 1 << (byte % 8);
        }
        for len in (0..1000).chain([signed / 2]) {
            let cut = verify(&sample.quote[..len], &sample.collateral, &Roots::default(), at);
            assert!(cut.is_err(), "{name}, cut to {len}");
        }
    }
}

#[test]
fn a_policy_judges_real_quotes() {
    let sgx = Sample::read("sgx_quote", 1_750_400_000).verify().unwrap();
    let policy = |claims: &Claims, rest: &str| {
        let (tee, measurement) = (claims.tee, &claims.measurement);
        let text =
            format!("[[accept]]\ntee = \"{tee}\"\nmeasurement = [\"{measurement}\"]\n{rest}");
        Policy::parse(&text).unwrap()
    };
    let judge = |claims: &Claims, rest: &str| {
        policy(claims, rest).appraise_one(claims, None, 1_750_400_000).map_err(|refusal| refusal.0)
    };
    let hardening = "tcb = [\"ConfigurationAndSWHardeningNeeded\"]";
    assert!(judge(&sgx, hardening).unwrap_err().contains("INTEL-SA-00289"));
    let named = "advisories = [\"INTEL-SA-00289\", \"INTEL-SA-00615\"]";
    assert_eq!(judge(&sgx, &format!("{hardening}\n{named}")), Ok(()));
    let signer = format!("{hardening}\n{named}\nsigner = [\"{}\"]", "00".repeat(32));
    assert!(judge(&sgx, &signer).unwrap_err().contains("its signer is 815f42f1"));
    assert!(judge(&sgx, &format!("{hardening}\n{named}\nsvn-min = 1")).is_err());
    assert!(judge(&sgx, &format!("{hardening}\n{named}\nproduct = 1")).is_err());
}

/// A quote has certificates inside, and is none.
#[test]
fn the_command_takes_quotes() {
    let folder = tempfile::tempdir().unwrap();
    let (quote, policy) = (samples().join("tdx_quote"), folder.path().join("policy.toml"));
    let run = |arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_traceless-attest"));
        let output = command.args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = run(&["show".as_ref(), quote.as_os_str(), "--json".as_ref()]);
    assert_eq!(code, Some(0), "{said}");
    let shown: serde_json::Value = serde_json::from_str(&said).unwrap();
    let measurement = shown["claims"]["measurement"].as_str().unwrap();
    let accept = format!("[[accept]]\ntee = \"tdx\"\nmeasurement = [\"{measurement}\"]\n");
    fs::write(&policy, accept + "registers = {}\n").unwrap();
    let (key, token) = (folder.path().join("ear.pem"), folder.path().join("ear.jwt"));
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let collateral = samples().join("tdx_quote_collateral.json");
    let (code, said) = run(&[
        "verify".as_ref(),
        quote.as_os_str(),
        "--policy".as_ref(),
        policy.as_os_str(),
        "--collateral".as_ref(),
        collateral.as_os_str(),
        "--at".as_ref(),
        "1750400000".as_ref(),
        "--ear".as_ref(),
        token.as_os_str(),
        "--ear-key".as_ref(),
        key.as_os_str(),
    ]);
    assert!(code == Some(0) && said.ends_with("ACCEPTED\n"), "{said}");
    let token = fs::read_to_string(token).unwrap();
    let claims = URL_SAFE_NO_PAD.decode_to_vec(token.split('.').nth(1).unwrap()).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["submods"]["tdx-0"]["ear_status"], "affirming");
}

/// The floor is 2 ms.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn a_quote_is_verified_in_milliseconds() {
    let sample = Sample::read("tdx_quote", 1_750_400_000);
    let best = (0..20).map(|_| {
        let begun = Instant::now();
        sample.verify().unwrap();
        begun.elapsed()
    });
    // Far more than the floor: the machine may be busy.
    let best = best.min().unwrap();
    assert!(best < Duration::from_millis(20), "{best:?}");
}
