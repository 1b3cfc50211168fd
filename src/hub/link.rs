//! The `Link` header (RFC 8288): where the next page of a listing is.

use reqwest::header::{HeaderMap, LINK};
use thiserror::Error as ThisError;
use url::Url;

use super::error::{Error, ErrorKind, shown};

#[derive(Debug, ThisError)]
pub(super) enum LinkError {
    #[error("the link to the next page is no URL: {0}")]
    NotAUrl(#[source] url::ParseError),
    #[error("the link to the next page leads away from {from} to {to}: not followed")]
    OtherOrigin { from: String, to: String },
    #[error("the link to the next page leads back to the same page")]
    Loop,
}

impl From<LinkError> for Error {
    fn from(error: LinkError) -> Self {
        Self::new(ErrorKind::Protocol, error.to_string()).with_source(error)
    }
}

/// The page after `page`, if there is one.
///
/// The URL is taken as the server gave it: cursors are opaque, and taking one apart to build the
/// URL anew loses its encoding. It must stay at the origin, as the token goes along.
pub(super) fn next_page(page: &Url, headers: &HeaderMap) -> Result<Option<Url>, LinkError> {
    let mut values = headers.get_all(LINK).iter();
    let Some(target) = values.find_map(|value| next_target(value.to_str().ok()?)) else {
        return Ok(None);
    };
    let next = page.join(target).map_err(LinkError::NotAUrl)?;
    if next.origin() != page.origin() {
        return Err(LinkError::OtherOrigin {
            from: page.origin().ascii_serialization(),
            to: shown(&next),
        });
    }
    if next == *page {
        return Err(LinkError::Loop);
    }
    Ok(Some(next))
}

/// The target of the first link with `rel="next"`.
///
/// The `<…>` is read first, then its parameters: URLs may hold commas and semicolons, so splitting
/// the header at commas tears them apart.
fn next_target(header: &str) -> Option<&str> {
    let mut rest = header;
    loop {
        let (target, after) = rest.split_once('<')?.1.split_once('>')?;
        let (is_next, after) = parameters(after);
        if is_next {
            return Some(target.trim());
        }
        rest = after;
    }
}

/// Whether the parameters at the start of `text` say `rel=next`, and what follows them.
fn parameters(text: &str) -> (bool, &str) {
    let end = end_of_parameters(text);
    let (parameters, rest) = text.split_at(end);
    let is_next = super::rate_limit::split_outside_quotes(parameters, ';').any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else {
            return false;
        };
        let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel")
            && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
    });
    (is_next, rest)
}

/// Up to the comma that starts the next link.
fn end_of_parameters(text: &str) -> usize {
    super::rate_limit::split_outside_quotes(text, ',')
        .next()
        .map_or(text.len(), str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(links: &[&str]) -> Result<Option<String>, LinkError> {
        let page = Url::parse("https://hub.test/api/buckets/o/b/tree?limit=2").unwrap();
        let mut headers = HeaderMap::new();
        for link in links {
            headers.append(LINK, link.parse().unwrap());
        }
        Ok(next_page(&page, &headers)?.map(String::from))
    }

    #[test]
    fn the_next_link_is_found_and_kept_as_given() {
        let url = "https://hub.test/api/buckets/o/b/tree?cursor=a%3D%3D,b;c&limit=2";
        for links in [
            vec![format!("<{url}>; rel=\"next\"")],
            vec![format!("<{url}>;rel=next")],
            vec![format!("<{url}>; title=\"a, b; <x>\"; REL=\"prev NEXT\"")],
            vec![format!(
                "<https://hub.test/x,y>; rel=\"prev\", <{url}>; rel=\"next\""
            )],
            vec![
                "<https://hub.test/first>; rel=\"first\"".to_owned(),
                format!("<{url}>; rel=\"next\""),
            ],
        ] {
            let links: Vec<_> = links.iter().map(String::as_str).collect();
            assert_eq!(next(&links).unwrap().as_deref(), Some(url), "{links:?}");
        }
        assert_eq!(
            next(&["</api/next?c=1>; rel=\"next\""]).unwrap().as_deref(),
            Some("https://hub.test/api/next?c=1")
        );
    }

    #[test]
    fn no_next_link_ends_the_listing() {
        for links in [
            vec![],
            vec!["<https://hub.test/x>; rel=\"prev\""],
            vec!["<https://hub.test/x>; title=\"rel=next\""],
            vec!["nonsense"],
            vec!["<https://hub.test/x"],
        ] {
            assert_eq!(next(&links).unwrap(), None, "{links:?}");
        }
    }

    #[test]
    fn a_link_may_not_lead_elsewhere() {
        for elsewhere in [
            "<https://evil.test/api>; rel=next",
            "<http://hub.test/api>; rel=next",
            "<https://hub.test:8443/api>; rel=next",
            "<//evil.test/x>; rel=next",
        ] {
            let error = next(&[elsewhere]).unwrap_err();
            assert!(
                matches!(error, LinkError::OtherOrigin { .. }),
                "{elsewhere}"
            );
        }
        let same = "<https://hub.test/api/buckets/o/b/tree?limit=2>; rel=next";
        assert!(matches!(next(&[same]), Err(LinkError::Loop)));
        assert!(matches!(
            next(&["<https://hub.test:x/>; rel=next"]),
            Err(LinkError::NotAUrl(_))
        ));
    }
}
