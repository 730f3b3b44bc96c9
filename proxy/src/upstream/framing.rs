//! How an upstream's HTTP/1.1 answer says where it ends. The library behind hyper takes more than the
//! gate does: any list of transfer codings, whose contents then look like the answer itself, and a
//! length beside them.

use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Response};

use super::UpstreamError;

/// Leaves one statement of the answer's end at most. Whether there was one at most before: else its
/// connection is not to be used again, since the next answer may begin elsewhere for the upstream.
///
/// # Errors
/// [`UpstreamError::TransferCoding`] for any coding but one `chunked`.
pub(super) fn settle<B>(response: &mut Response<B>) -> Result<bool, UpstreamError> {
    let fields = response.headers_mut();
    let chunked = is_chunked(fields)?;
    if chunked {
        return Ok(fields.remove(CONTENT_LENGTH).is_none());
    }
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else {
        return Ok(true);
    };
    let listed = first.as_bytes().contains(&b',');
    if lengths.next().is_none() && !listed {
        return Ok(true);
    }
    // hyper has seen that they are all the same.
    let one = first.as_bytes().split(|byte| *byte == b',').next();
    let one = one.and_then(|one| HeaderValue::from_bytes(one.trim_ascii()).ok());
    match one {
        Some(one) => fields.insert(CONTENT_LENGTH, one),
        None => fields.remove(CONTENT_LENGTH),
    };
    Ok(false)
}

fn is_chunked(fields: &HeaderMap) -> Result<bool, UpstreamError> {
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(only), None)
            if only
                .as_bytes()
                .trim_ascii()
                .eq_ignore_ascii_case(b"chunked") =>
        {
            Ok(true)
        }
        (Some(_), _) => Err(UpstreamError::TransferCoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(fields: &[(&str, &str)]) -> (Option<bool>, Vec<String>) {
        let mut response = Response::new(());
        for (name, value) in fields {
            let name: http::HeaderName = name.parse().unwrap();
            response.headers_mut().append(name, value.parse().unwrap());
        }
        let plain = settle(&mut response).ok();
        let left = response.headers().get_all(CONTENT_LENGTH).iter();
        let left = left.map(|it| it.to_str().unwrap().to_owned()).collect();
        (plain, left)
    }

    /// Attack: FRM-05, FRM-18
    #[test]
    fn one_end_is_left_or_none() {
        let (te, cl) = ("transfer-encoding", "content-length");
        let one = vec!["2".to_owned()];
        assert_eq!(settled(&[]), (Some(true), vec![]));
        assert_eq!(settled(&[(cl, "2")]), (Some(true), one.clone()));
        assert_eq!(settled(&[(te, "Chunked")]), (Some(true), vec![]));
        assert_eq!(
            settled(&[(te, "chunked"), (cl, "2")]),
            (Some(false), vec![])
        );
        assert_eq!(settled(&[(cl, "2"), (cl, "2")]), (Some(false), one.clone()));
        assert_eq!(settled(&[(cl, "2 , 2")]), (Some(false), one));
        for coding in ["", "gzip", "gzip, chunked", "chunked, chunked", "xchunked"] {
            assert_eq!(settled(&[(te, coding)]).0, None, "{coding}");
        }
        assert_eq!(settled(&[(te, "chunked"), (te, "chunked")]).0, None);
    }
}
