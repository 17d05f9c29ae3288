// Vision transformer, as torchvision's VisionTransformer; every dimension free.
// Legend: b batch, t token, c channel (dim), n of q/k/v, h head, d head dim, f mlp, p q patch, k
// class.
#include "models/program.h"

#include <cmath>

namespace tessera::models {
namespace {

using namespace ir;

double xavier(std::int64_t fan_in, std::int64_t fan_out) {
  return std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
}
std::string layer(std::int64_t i) {
  return "encoder.layers.encoder_layer_" + std::to_string(i) + ".";
}

// 1-D tensors, tokens and position embeddings do not decay.
Param plain(std::string name, Shape shape, std::vector<std::string> dims, Init init,
            Shape torch_shape) {
  const bool decay = torch_shape.size() > 1;
  return {.name = std::move(name),
          .shape = std::move(shape),
          .dims = std::move(dims),
          .init = init,
          .decay = decay,
          .torch_shape = std::move(torch_shape),
          .torch_perm = {},
          .split_shape = {}};
}

std::vector<Param> vit_parameters(const ModelConfig& m) {
  const std::int64_t c = m.dim, h = m.heads, d = m.dim / m.heads, f = m.mlp, p = m.patch;
  const std::int64_t tokens = (m.image_h / p) * (m.image_w / p) + (m.pool == "class" ? 1 : 0);
  std::vector<Param> out;
  if (m.pool == "class") {
    out.push_back(plain("class_token", {1, c}, {"token", "dim"}, {Init::zeros}, {1, 1, c}));
    out.back().decay = false;
  }
  const double fan_in = static_cast<double>(m.channels * p * p);
  Param conv =
      plain("conv_proj.weight", {p, p, m.channels, c}, {"patch", "patch", "channel", "dim"},
            {Init::truncated_normal, std::sqrt(1.0 / fan_in)}, {c, m.channels, p, p});
  conv.torch_perm = {2, 3, 1, 0};
  out.push_back(conv);
  out.push_back(plain("conv_proj.bias", {c}, {"dim"}, {Init::zeros}, {c}));
  out.push_back(plain("encoder.pos_embedding", {tokens, c}, {"token", "dim"}, {Init::normal, 0.02},
                      {1, tokens, c}));
  out.back().decay = false;
  for (std::int64_t i = 0; i < m.depth; ++i) {
    const std::string l = layer(i);
    auto norm = [&](const std::string& name) {
      out.push_back(plain(l + name + ".weight", {c}, {"dim"}, {Init::ones}, {c}));
      out.push_back(plain(l + name + ".bias", {c}, {"dim"}, {Init::zeros}, {c}));
    };
    norm("ln_1");
    // torchvision's in_proj is one matrix: xavier sees fan_out = 3 c.
    out.push_back(plain(l + "self_attention.in_proj_weight", {3, h, d, c},
                        {"qkv", "heads", "head_dim", "dim"}, {Init::uniform, xavier(c, 3 * c)},
                        {3 * c, c}));
    out.push_back(plain(l + "self_attention.in_proj_bias", {3, h, d}, {"qkv", "heads", "head_dim"},
                        {Init::zeros}, {3 * c}));
    out.push_back(plain(l + "self_attention.out_proj.weight", {c, h, d},
                        {"dim", "heads", "head_dim"},
                        {Init::uniform, 1.0 / std::sqrt(static_cast<double>(c))}, {c, c}));
    out.push_back(plain(l + "self_attention.out_proj.bias", {c}, {"dim"}, {Init::zeros}, {c}));
    norm("ln_2");
    out.push_back(
        plain(l + "mlp.0.weight", {f, c}, {"mlp", "dim"}, {Init::uniform, xavier(c, f)}, {f, c}));
    out.push_back(plain(l + "mlp.0.bias", {f}, {"mlp"}, {Init::normal, 1e-6}, {f}));
    out.push_back(
        plain(l + "mlp.3.weight", {c, f}, {"dim", "mlp"}, {Init::uniform, xavier(f, c)}, {c, f}));
    out.push_back(plain(l + "mlp.3.bias", {c}, {"dim"}, {Init::normal, 1e-6}, {c}));
  }
  out.push_back(plain("encoder.ln.weight", {c}, {"dim"}, {Init::ones}, {c}));
  out.push_back(plain("encoder.ln.bias", {c}, {"dim"}, {Init::zeros}, {c}));
  const Init head = m.head_init == "zero" ? Init{Init::zeros} : Init{Init::normal, 0.02};
  out.push_back(plain("heads.head.weight", {m.classes, c}, {"class", "dim"}, head, {m.classes, c}));
  out.push_back(plain("heads.head.bias", {m.classes}, {"class"}, {Init::zeros}, {m.classes}));
  return out;
}

// Writes the forward program: embeddings, blocks and the head.
struct VitForward {
  Builder& b;
  const ModelConfig& m;
  const Var images;
  const Mode& mode;
  const ParamOf& param;
  const std::int64_t batch = b.type(images).shape[0];
  const std::int64_t d = m.dim / m.heads;
  const Var rng = mode.random && (m.dropout > 0 || m.drop_path > 0)
                      ? b.input(Input::scalar, "rng", {DType::i64, {3}, {}}, {}, Role::key)
                      : none;

  Var dropout(Var x, double rate, bool per_sample, const char* name) {
    if (!mode.random || rate <= 0) return x;
    return b.emit1(Op::dropout,
                   Dropout{.rate = rate,
                           .per_sample = per_sample,
                           .stream = b.current_scope() + "." + name,
                           .base = 0},
                   {x, rng}, name);
  }
  Var norm(Var x, const std::string& p) {
    return b.emit(Op::layer_norm, Norm{1e-6}, {x, param(p + ".weight"), param(p + ".bias")},
                  {"y", "mean", "rstd"})[0];
  }

  Var embed() {
    const auto scope = b.scope("embeddings");
    const Var patches = b.emit1(Op::patchify, Patch{m.patch, 0}, {images}, "patches");
    Var x = b.add("btc,c->btc",
                  b.contract("btpqc,pqcd->btd", patches, param("conv_proj.weight"), "conv"),
                  param("conv_proj.bias"), "tokens");
    if (m.pool == "class") {
      const Var token = b.emit1(Op::broadcast, Broadcast{"tc->btc", {batch, 1, m.dim}},
                                {param("class_token")}, "class");
      x = b.emit1(Op::concat, Dim{1}, {token, x}, "with_class");
    }
    x = dropout(b.add("btc,tc->btc", x, param("encoder.pos_embedding"), "embedded"), m.dropout,
                false, "dropout");
    return b.mark("residual", x, "residual", 1);
  }

  // The class token alone is read of the last block. All that follows attention works row by row,
  // so that row is taken there: same numbers, fewer of them. Dropout draws by the place of an
  // element in its sample, and the class token is the first.
  bool takes_class(std::int64_t i) const { return m.pool == "class" && i + 1 == m.depth; }
  Var class_of(Var x) { return b.emit1(Op::slice, Slice{1, 0, 1}, {x}, "class"); }

  Var attention(Var y, const std::string& l, std::int64_t i, double drop_path) {
    const auto scope = b.scope("msa");
    const std::string a = l + "self_attention.";
    Var qkv = b.add("nbthd,nhd->nbthd",
                    b.contract("btc,nhdc->nbthd", y, param(a + "in_proj_weight"), "qkv_"),
                    param(a + "in_proj_bias"), "qkv");
    // Sequence parallel: tokens are shared outside attention, heads inside.
    qkv = b.mark("heads", b.mark("tokens", qkv, "tokens", 2), "heads", 3);
    const std::vector<Var> parts = b.emit(Op::unstack, None{}, {qkv}, {"q", "k", "v"});
    Var o = b.emit(Op::attention, Attention{1.0 / std::sqrt(static_cast<double>(d)), false, false},
                   parts, {"o", "lse"})[0];
    o = b.mark("tokens", o, "tokens", 1);
    if (takes_class(i)) o = class_of(o);
    y = b.add("btc,c->btc", b.contract("bthd,chd->btc", o, param(a + "out_proj.weight"), "proj_"),
              param(a + "out_proj.bias"), "proj");
    return dropout(dropout(y, m.dropout, false, "dropout"), drop_path, true, "drop_path");
  }

  Var mlp(Var y, const std::string& l, double drop_path) {
    const auto scope = b.scope("mlp");
    Var z = b.add("btf,f->btf", b.contract("btc,fc->btf", y, param(l + "mlp.0.weight"), "fc1_"),
                  param(l + "mlp.0.bias"), "fc1");
    z = dropout(b.emit1(Op::gelu, Gelu{false}, {z}, "gelu"), m.dropout, false, "dropout_1");
    z = b.add("btc,c->btc", b.contract("btf,cf->btc", z, param(l + "mlp.3.weight"), "fc2_"),
              param(l + "mlp.3.bias"), "fc2");
    return dropout(dropout(z, m.dropout, false, "dropout_2"), drop_path, true, "drop_path");
  }

  Var block(Var x, std::int64_t i) {
    const auto scope = b.scope("blocks." + std::to_string(i));
    const std::string l = layer(i);
    // Stochastic depth grows linearly with depth, 0 in the first block.
    const double drop_path =
        m.depth > 1 ? m.drop_path * static_cast<double>(i) / static_cast<double>(m.depth - 1) : 0.0;
    Var y = none;
    {
      const auto inner = b.scope("ln_1");
      y = norm(x, l + "ln_1");
    }
    y = attention(y, l, i, drop_path);
    {
      const auto inner = b.scope("residual_1");
      if (takes_class(i)) x = class_of(x);
      x = b.add(x, y, "x");
    }
    {
      const auto inner = b.scope("ln_2");
      y = norm(x, l + "ln_2");
    }
    y = mlp(y, l, drop_path);
    const auto inner = b.scope("residual_2");
    return b.mark("residual", b.add(x, y, "x"), "residual", takes_class(i) ? -1 : 1);
  }

  Var logits() {
    Var x = embed();
    for (std::int64_t i = 0; i < m.depth; ++i) x = block(x, i);
    if (m.pool == "class") {
      const auto scope = b.scope("ln_final");
      x = b.reshape(x, {batch, m.dim});
      x = norm(x, "encoder.ln");
    } else {
      const auto scope = b.scope("ln_final");
      x = norm(x, "encoder.ln");
      const double tokens = static_cast<double>(b.type(x).shape[1]);
      x = b.scale(b.sum("btc->bc", x, "total"), 1.0 / tokens, "pooled");
    }
    const auto scope = b.scope("head");
    return b.add("bk,k->bk", b.contract("bc,kc->bk", x, param("heads.head.weight"), "logits_"),
                 param("heads.head.bias"), "logits");
  }
};

Var vit_forward(Builder& b, const ModelConfig& m, Var images, const Mode& mode,
                const ParamOf& param) {
  return VitForward{.b = b, .m = m, .images = images, .mode = mode, .param = param}.logits();
}

}  // namespace

const FamilyProgram vit_program = {vit_parameters, vit_forward};

}  // namespace tessera::models
