//! `realm-forward LISTEN SERVER`: accepts, connects and relays with `realm_io`, on one thread, as
//! realm itself does.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

async fn relay(mut client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // Pipes, or where there are none buffers.
    match realm_io::bidi_zero_copy(&mut client, &mut server).await {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            realm_io::bidi_copy(&mut client, &mut server).await.map(drop)
        }
        outcome => outcome.map(drop),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses: Vec<SocketAddr> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [listen, server] = addresses[..] else { return Err("usage: realm-forward LISTEN SERVER".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (client, _) = listener.accept().await?;
            // How a connection ends is between its two sides.
            tokio::spawn(async move { relay(client, server).await.ok() });
        }
    })
}
