//! What a credential cannot do.

use super::*;

/// A credential is neither printed nor copied: what is not implemented cannot be called.
#[test]
fn secrets_are_neither_printed_nor_copied() {
    trait Fallback {
        const HAS: bool = false;
    }
    impl<T: ?Sized> Fallback for T {}
    macro_rules! has {
        ($type:ty: $bound:path) => {{
            #[allow(dead_code, reason = "which constant is used is what is asked")]
            struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
            #[allow(dead_code, reason = "which constant is used is what is asked")]
            impl<T: ?Sized + $bound> Probe<T> {
                const HAS: bool = true;
            }
            <Probe<$type>>::HAS
        }};
    }
    assert!(has!(String: std::fmt::Debug), "the control");
    assert!(
        has!(String: Clone) && has!(String: serde::Serialize),
        "the control"
    );
    for found in [
        has!(Secret: std::fmt::Debug),
        has!(Secret: std::fmt::Display),
        has!(Secret: Clone),
        has!(Secret: serde::Serialize),
        has!(Credential: std::fmt::Debug),
        has!(Credential: Clone),
        has!(Credential: serde::Serialize),
        has!(Vault: std::fmt::Debug),
        has!(Vault: Clone),
        has!(crate::openpgp::SecretKey: std::fmt::Debug),
        has!(crate::openpgp::SecretKey: Clone),
        has!(crate::store::Store: std::fmt::Debug),
    ] {
        assert!(!found);
    }
}
