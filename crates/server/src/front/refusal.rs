//! Words for what is no request: hyper answers it with a bare status and closes the connection before anybody sees it. Such
//! an answer is known by its head, which has no `x-request-id` as all of ours do, and gets an error for a body.

use super::reply::Shape;
use crate::failure::Failure;
use axum::http::StatusCode;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose bare refusals get words.
#[derive(Debug)]
pub struct Worded<T> {
    inner: T,
    /// The most bytes of a head.
    head: usize,
    /// What is written begins where the last piece ended: it may be a head.
    fresh: bool,
    /// What is sent in the place of a refusal, and how much of it was.
    own: Option<(Vec<u8>, usize)>,
}

impl<T> Worded<T> {
    pub fn new(inner: T, head: usize) -> Worded<T> {
        Worded { inner, head, fresh: true, own: None }
    }
}

/// A refusal of hyper's with words in it; None: it is something else.
fn worded(bytes: &[u8], head: usize) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let (first, rest) = text.split_once("\r\n")?;
    let status = first.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    if rest.contains("\r\n\r\n") || rest.to_ascii_lowercase().contains("x-request-id:") {
        return None;
    }
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    let failure = match status {
        StatusCode::BAD_REQUEST => {
            Failure::new(status, "this is no request of HTTP/1.1 that can be read").code("malformed_request")
        }
        StatusCode::URI_TOO_LONG => Failure::new(status, "the path is too long").code("header_too_large"),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            let message = format!("the head of the request is larger than {head} bytes, or has more than 100 fields");
            Failure::new(status, message).code("header_too_large")
        }
        _ => return None,
    };
    let body = Shape::OpenAi.body(&failure).to_string();
    let fields = "content-type: application/json\r\nconnection: close\r\ncache-control: no-store\r\n\
                  x-content-type-options: nosniff";
    Some(format!("{first}\r\n{fields}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

impl<T: AsyncRead + Unpin> AsyncRead for Worded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Worded<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.own.is_none() && this.fresh {
            this.own = worded(bytes, this.head).map(|own| (own, 0));
        }
        let Some((own, sent)) = &mut this.own else {
            let written = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
            this.fresh = written == bytes.len();
            return Poll::Ready(Ok(written));
        };
        while let Some(rest) = own.get(*sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut this.inner).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
        this.own = None;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return self.poll_write(context, only);
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, slices))?;
        self.fresh = written == slices.iter().map(|slice| slice.len()).sum::<usize>();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_refusals_get_words_and_nothing_else_does() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let own = worded(bare.as_bytes(), 77).expect("a refusal");
        let own = String::from_utf8(own).expect("text");
        let (head, body) = own.split_once("\r\n\r\n").expect("a body");
        assert!(
            head.starts_with("HTTP/1.1 431 ") && head.contains(&format!("content-length: {}", body.len())),
            "{own}"
        );
        assert!(body.contains("larger than 77 bytes") && body.contains("header_too_large"), "{own}");
        for other in [
            "HTTP/1.1 400 Bad Request\r\nx-request-id: 5\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 1\r\n\r\nx",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "x",
            "",
        ] {
            assert_eq!(worded(other.as_bytes(), 77), None, "{other}");
        }
    }
}
