//! No block scheme is made or opened with a cipher that the machine computes wrongly.

use std::sync::Arc;
use traceless_block::deniable::DeniableGeometry;
use traceless_block::registry::KINDS;
use traceless_core::Error;
use traceless_core::durable::MemVault;
use traceless_core::rng::System;
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::SharedScheme;
use traceless_core::seal::wrong_machine::with;
use traceless_core::seal::{Aead, Aegis, Cipher, DoubleAegis, Secret, WideAegis};
use traceless_core::store::{MemStore, Store};

/// Whether making and opening the scheme with this cipher are refused because of it.
fn refused(scheme: &SharedScheme, cipher: Cipher, wrong: fn(&dyn Fn()) -> ()) {
    let store: Arc<dyn Store> = Arc::new(MemStore::new(scheme.store_len()));
    let vault = MemVault::default();
    let context = || SchemeContext {
        key: Secret::from_bytes([3; 32]),
        vault: Box::new(vault.clone()),
        cipher,
        ..SchemeContext::over(store.clone(), Box::new(System))
    };
    let is_refused = |made: Result<(), Error>| {
        let is_right = matches!(&made, Err(Error::CipherUnsound(name)) if *name == cipher.name());
        assert!(is_right, "{} {cipher}: {made:?}", scheme.name());
    };
    wrong(&|| is_refused(scheme.create_block(context()).map(drop)));
    scheme.create_block(context()).unwrap().close().unwrap();
    let state = vault.kept();
    let open = || scheme.open_block(context(), &state, &mut |_, _| {}).map(drop);
    wrong(&|| is_refused(open()));
    assert!(vault.kept() == state, "nothing was changed");
    open().unwrap();
}

#[test]
fn a_cipher_that_is_computed_wrongly_is_refused_by_every_scheme() {
    let mut schemes: Vec<SharedScheme> = KINDS
        .iter()
        .flat_map(|kind| (kind.samples)(70, 300, 512).unwrap())
        .map(|(_, scheme)| scheme)
        .collect();
    schemes.push(Arc::new(DeniableGeometry::new(1700, 64).unwrap()));
    for scheme in schemes {
        refused(&scheme, Cipher::AesGcm, |act| with::<Aead, _>(act));
        refused(&scheme, Cipher::Aegis256, |act| with::<Aegis, _>(act));
        refused(&scheme, Cipher::Aegis256X2, |act| with::<DoubleAegis, _>(act));
        refused(&scheme, Cipher::Aegis256X4, |act| with::<WideAegis, _>(act));
    }
}
