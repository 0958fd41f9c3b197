//! Reports of SEV-SNP of a chip that does not exist.

mod made_up;

use made_up::{CHIP, Chip, Fields, MEASUREMENT, NOW, TCB};
use std::time::{Duration, Instant};
use traceless_attest::{AmdTcb, Claims, Collateral, Policy, Roots, Tcb, Tee, verify};

/// The collateral that a user keeps: the chain of the maker.
fn collateral(chip: &Chip) -> Collateral {
    let mut collateral = Collateral::default();
    collateral.add_bytes(chip.chain_pem().as_bytes()).unwrap();
    collateral
}

fn evidence(chip: &Chip, fields: &Fields) -> Vec<u8> {
    [chip.report(fields), chip.table()].concat()
}

fn refused(chip: &Chip, evidence: &[u8], collateral: &Collateral) -> String {
    let roots = Roots::made_up(vec![chip.root_der()]);
    verify(evidence, collateral, &roots, NOW).unwrap_err().to_string()
}

fn accepted(chip: &Chip, fields: &Fields) -> Claims {
    let roots = Roots::made_up(vec![chip.root_der()]);
    verify(&evidence(chip, fields), &collateral(chip), &roots, NOW).unwrap()
}

/// A policy that accepts the made-up guest, with lines before and in its entry.
fn policy(limits: &str, entry: &str) -> Policy {
    let measurement = "a5".repeat(48);
    let accept = format!("[[accept]]\ntee = \"snp\"\nmeasurement = [\"{measurement}\"]");
    Policy::parse(&format!("{limits}\n{accept}\n{entry}\n")).unwrap()
}

#[test]
fn a_report_is_verified_with_what_its_host_passes() {
    let chip = Chip::new();
    let claims = accepted(&chip, &Fields::default());
    assert_eq!((claims.tee, claims.debug, claims.migratable), (Tee::Snp, false, false));
    assert_eq!(
        (&claims.measurement.0[..], &claims.report_data.0[..]),
        (&MEASUREMENT[..], &[7; 64][..])
    );
    let [bootloader, tee, snp, microcode] = TCB;
    assert_eq!(claims.tcb, Tcb::Amd(AmdTcb { bootloader, tee, snp, microcode, fmc: 0 }));
    assert_eq!(claims.platform.unwrap().0, CHIP);
}

#[test]
fn any_changed_bit_of_what_is_signed_is_refused() {
    let chip = Chip::new();
    let (evidence, collateral) = (evidence(&chip, &Fields::default()), collateral(&chip));
    let roots = Roots::made_up(vec![chip.root_der()]);
    let honest = verify(&evidence, &collateral, &roots, NOW).unwrap();
    for byte in 0..evidence.len() {
        let mut changed = evidence.clone();
        changed[byte] ^= 1 << (byte % 8);
        let judged = verify(&changed, &collateral, &roots, NOW);
        // What follows the signature is padding, and names of entries in the table.
        if byte < 0x330 {
            assert!(judged.is_err(), "byte {byte}");
        } else if let Ok(claims) = judged {
            assert_eq!(claims, honest, "byte {byte}");
        }
        assert!(verify(&evidence[..byte], &collateral, &roots, NOW).is_err() || byte >= 0x4a0);
    }
}

#[test]
fn keys_of_other_chips_and_versions_are_refused() {
    let chip = Chip::new();
    let other_chip = Fields { chip: [1; 64], ..Fields::default() };
    let newer = Fields { tcb: [TCB[0], TCB[1], TCB[2] + 1, TCB[3]], ..Fields::default() };
    for (fields, reason) in [(other_chip, "another chip"), (newer, "other security versions")] {
        let reasons = refused(&chip, &evidence(&chip, &fields), &collateral(&chip));
        assert!(reasons.contains(reason), "{reasons}");
    }
    // A chip may be masked.
    let masked = accepted(&chip, &Fields { chip: [0; 64], ..Fields::default() });
    assert_eq!(masked.platform, None);
}

#[test]
fn only_the_pinned_root_is_trusted() {
    let (chip, other) = (Chip::new(), Chip::new());
    let evidence = evidence(&chip, &Fields::default());
    let collateral = collateral(&chip);
    for roots in [Roots::default(), Roots::made_up(vec![other.root_der()])] {
        let error = verify(&evidence, &collateral, &roots, NOW).unwrap_err().to_string();
        assert!(error.contains("no root certificate of AMD"), "{error}");
    }
    let roots = Roots::made_up(vec![chip.root_der()]);
    for at in [NOW - 5 * 365 * 86_400, NOW + 30 * 365 * 86_400] {
        let error = verify(&evidence, &collateral, &roots, at).unwrap_err().to_string();
        assert!(error.contains("signing key: Cert"), "{error}");
    }
}

#[test]
fn what_is_missing_is_named_with_its_place() {
    let chip = Chip::new();
    let report = chip.report(&Fields::default());
    let error = refused(&chip, &report, &collateral(&chip));
    let place = format!("/{}?blSPL=4&teeSPL=1&snpSPL=22&ucodeSPL=213", "c4".repeat(64));
    assert!(error.contains(&place), "{error}");
    let mut turin = report.clone();
    turin[0x188] = 0x1a;
    let error = refused(&chip, &turin, &collateral(&chip));
    let place =
        format!("/Turin/{}?fmcSPL=4&blSPL=1&teeSPL=0&snpSPL=0&ucodeSPL=213", "c4".repeat(8));
    assert!(error.contains(&place), "{error}");
    let with_key = [report, chip.table()].concat();
    let error = refused(&chip, &with_key, &Collateral::default());
    assert!(error.contains("/cert_chain"), "{error}");
}

/// AMD issues certificates of the same key anew; a folder may have all of them, in any order.
#[test]
fn one_valid_certificate_of_a_key_is_enough() {
    let chip = Chip::new();
    let report = chip.report(&Fields::default());
    let roots = Roots::made_up(vec![chip.root_der()]);
    for order in [
        [&chip.reissued_certificate, &chip.key_certificate],
        [&chip.key_certificate, &chip.reissued_certificate],
    ] {
        let mut collateral = collateral(&chip);
        for each in order {
            collateral.add_bytes(each).unwrap();
        }
        verify(&report, &collateral, &roots, NOW).unwrap();
    }
    let mut collateral = collateral(&chip);
    collateral.add_bytes(&chip.reissued_certificate).unwrap();
    assert!(refused(&chip, &report, &collateral).contains("CertNotValidYet"));
}

#[test]
fn revoked_certificates_are_refused_and_lists_grow_old() {
    let chip = Chip::new();
    let roots = Roots::made_up(vec![chip.root_der()]);
    let evidence = evidence(&chip, &Fields::default());
    let aged = policy("collateral-age-days = 40", "tcb-min = {}");
    for (month, revokes, found) in
        [(12, false, ""), (12, true, "CertRevoked"), (3, false, "days ago")]
    {
        let mut collateral = collateral(&chip);
        collateral.add_bytes(&chip.revocation_list(month, revokes)).unwrap();
        let judged = verify(&evidence, &collateral, &roots, NOW).map_err(|e| e.to_string());
        let judged = judged.and_then(|claims| {
            aged.appraise_one(&claims, None, NOW).map_err(|refusal| refusal.to_string())
        });
        match judged {
            Ok(()) => assert_eq!(found, ""),
            Err(error) => assert!(!found.is_empty() && error.contains(found), "{error}"),
        }
    }
    // A list with a wrong signature is no list.
    let mut collateral = collateral(&chip);
    let mut list = chip.revocation_list(12, false);
    *list.last_mut().unwrap() ^= 1;
    collateral.add_bytes(&list).unwrap();
    assert!(refused(&chip, &evidence, &collateral).contains("signing key"));
    // What cannot be read may revoke, and is not left out.
    for cut in [&list[..list.len() - 1], &[0x30, 0]] {
        assert!(collateral.add_bytes(cut).unwrap_err().contains("nor a revocation list"));
    }
    let without = accepted(&chip, &Fields::default());
    assert!(aged.appraise_one(&without, None, NOW).unwrap_err().0.contains("no revocation list"));
}

#[test]
fn a_policy_judges_what_is_genuine() {
    let chip = Chip::new();
    let default = Fields::default();
    let any = policy("", "tcb-min = {}");
    let judge = |policy: &Policy, fields: &Fields, data: &[u8; 64]| {
        policy.appraise(&[accepted(&chip, fields)], Some(data), NOW).map_err(|refusal| refusal.0)
    };
    assert_eq!(judge(&any, &default, &[7; 64]), Ok(()));
    let debug = Fields { policy: default.policy | 1 << 19, ..default.clone() };
    let migratable = Fields { policy: default.policy | 1 << 18, ..default.clone() };
    let inner = Fields { privilege_level: 2, ..default.clone() };
    for (fields, data, reason) in [
        (&debug, 7, "under debugging"),
        (&migratable, 7, "may move it"),
        (&inner, 7, "privilege level 2"),
        (&default, 8, "not bound"),
    ] {
        let refusal = judge(&any, fields, &[data; 64]).unwrap_err();
        assert!(refusal.contains(reason), "{refusal}");
    }
    let lenient = policy("", "tcb-min = {}\nallow-migration = true\nprivilege-level-max = 2");
    assert_eq!(judge(&lenient, &migratable, &[7; 64]), Ok(()));
    assert_eq!(judge(&lenient, &inner, &[7; 64]), Ok(()));
    assert!(judge(&lenient, &debug, &[7; 64]).is_err());
    let newer = policy("", "tcb-min = { snp = 22, microcode = 214 }");
    let refusal = judge(&newer, &default, &[7; 64]).unwrap_err();
    assert!(refusal.contains("microcode 213 is below 214"), "{refusal}");
}

/// The floor is 2 ms.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn a_report_is_verified_in_milliseconds() {
    let chip = Chip::new();
    let (evidence, collateral) = (evidence(&chip, &Fields::default()), collateral(&chip));
    let roots = Roots::made_up(vec![chip.root_der()]);
    let best = (0..20).map(|_| {
        let begun = Instant::now();
        verify(&evidence, &collateral, &roots, NOW).unwrap();
        begun.elapsed()
    });
    // Far more than the floor: the machine may be busy.
    let best = best.min().unwrap();
    assert!(best < Duration::from_millis(20), "{best:?}");
}
