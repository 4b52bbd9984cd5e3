"""WebAssembly guests, as far as they are built: the import for calling host functions. Nothing else loads wasmtime."""
