//! Streams that only look at what is read pass what is written straight on; those that look at both
//! pass on the rest.

/// Implements `AsyncWrite` for `$type<IO>` by its field `$io`.
macro_rules! delegate_write {
    ($type:ident, $io:ident) => {
        impl<IO: tokio::io::AsyncWrite + Unpin> tokio::io::AsyncWrite for $type<IO> {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut self.get_mut().$io).poll_write(context, bytes)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut self.get_mut().$io).poll_write_vectored(context, slices)
            }

            $crate::delegate::delegate_ends!($io);
        }
    };
}

/// In an implementation of `AsyncWrite`: everything but writing, by the field `$io`.
macro_rules! delegate_ends {
    ($io:ident) => {
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.get_mut().$io).poll_flush(context)
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::pin::Pin::new(&mut self.get_mut().$io).poll_shutdown(context)
        }

        fn is_write_vectored(&self) -> bool {
            self.$io.is_write_vectored()
        }
    };
}

pub(crate) use {delegate_ends, delegate_write};
