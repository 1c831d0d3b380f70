//! Mirrors a bridge, and with a target lets it send sFlow there, until standard input ends.
//! usage: ovs_mirror OVSDB BRIDGE [SFLOW-TARGET]

use skua_ovsdb::{ClientConfig, Export, MirrorSpec, OvsControl, Selected, Sflow};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ovs_mirror OVSDB BRIDGE [SFLOW-TARGET]";
    let target = arguments.next().ok_or(usage)?.parse()?;
    let bridge = arguments.next().ok_or(usage)?;
    let control = OvsControl::connect(ClientConfig::new(target), None)?;
    let sflow = arguments.next().map(|target| -> Result<_, Box<dyn Error>> {
        let export = Export::Sflow(Sflow {
            targets: vec![target.parse()?],
            agent: None,
            header: 128,
            sampling: 1,
            polling: 10,
        });
        Ok(control.export(&bridge, &export)?)
    });
    let sflow = sflow.transpose()?;
    let mirror = control.mirror(&MirrorSpec {
        bridge,
        selected: Selected::All,
    })?;
    println!("{}", mirror.output());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    mirror.remove()?;
    if let Some(sflow) = sflow {
        sflow.restore()?;
    }
    Ok(())
}
