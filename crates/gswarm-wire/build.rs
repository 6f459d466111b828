//! Compiles the proto files with protox, so that no protoc needs to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/gswarm.proto", "proto/legacy.proto"], ["proto"])?;
    let methods: Vec<String> = files
        .file
        .iter()
        .flat_map(|file| file.service.iter().map(move |service| (file.package(), service)))
        .flat_map(|(package, service)| {
            let name = service.name();
            service.method.iter().map(move |method| format!("/{package}.{name}/{}", method.name()))
        })
        .collect();
    let list = format!("&{methods:?}");
    #[expect(clippy::disallowed_methods, reason = "cargo tells build scripts in no other way")]
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(std::path::Path::new(&out).join("methods.rs"), list)?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
