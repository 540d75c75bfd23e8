{
  description = "«name», a kernel in Rust";

«% if on_cuda and device_compiler == "cuda-oxide" %»
  inputs = {
    kernel-builder.url = "github:huggingface/kernels";
    # The revision that kernels/Cargo.toml names.
    kernel-builder.inputs.cuda-oxide.url = "git+«oxide_git»?rev=«oxide_rev»";
  };
«% else %»
  inputs.kernel-builder.url = "github:huggingface/kernels";
«% endif %»

  outputs =
    { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
