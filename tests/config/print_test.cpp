// Printed text reads back: resolved.toml, the model as JSON, and the page of keys.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/fields.h"
#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::print_test {
namespace {

Override with(std::string_view name, std::string_view value) {
  for (const Flag& f : flags())
    if (f.name == name) return from_flag(f, value);
  ADD_FAILURE() << "no flag " << name;
  return {};
}
void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), message.npos) << message << "\nlacks: " << part;
}

TEST(Print, RoundTripsExactly) {
  Config c = load(
      {}, {from_set("optim.lr=0.1"), from_set("optim.eps=4.9406564584124654e-324"),
           from_set("precision.dtype=f64"), from_set("optim.weight_decay=0.30000000000000004"),
           from_set("optim.clip=1e9"), from_set("lr.warmup=\"0.1%\""),
           from_set("run.seed=9007199254740993"), from_set("model.image=[64,32]"),
           from_set("run.name=a \"b\" \\c é"), from_set("run.until=top1=0.94"),
           from_set("batch.global=10"), from_set("batch.accumulate=3"), from_set("run.epochs=7"),
           from_set("model.init=w.safetensors"), from_set("parallel.recompute=every=2")});
  const std::string text = to_toml(c);
  EXPECT_EQ(load_text(text, "resolved.toml"), c);
  EXPECT_EQ(to_toml(load_text(text, "resolved.toml")), text);
  for (const models::Preset& p : models::presets()) {
    c = load({}, {with("--model", p.name), with("--steps", "1"), from_set("lr.warmup=1")});
    EXPECT_EQ(c.model, p.config);
    EXPECT_EQ(load_text(to_toml(c), "x.toml"), c);
  }
  c = load({}, {from_set("model.family=vit"), with("--steps", "1")});
  EXPECT_EQ(load_text(to_toml(c), "x.toml"), c);
}

TEST(Print, JsonHasEveryKey) {
  const auto json = nlohmann::json::parse(to_json(load({}, {}, Purpose::other)));
  const models::ModelConfig vit = models::preset("vit_tiny_cifar");
  for (const Field& f : fields())
    EXPECT_EQ(json.at(std::string(f.section)).contains(std::string(f.key)), applies(f, vit))
        << f.name();
  EXPECT_EQ(json["model"]["image"], 32);
  EXPECT_EQ(json["lr"]["warmup"], "5%");
  EXPECT_TRUE(json["run"]["until"].is_null());
}

TEST(Fields, NamesAreUniqueAndDocumented) {
  std::set<std::string> names;
  const std::string docs = keys_markdown();
  for (const Field& f : fields()) {
    EXPECT_TRUE(names.insert(f.name()).second) << f.name();
    EXPECT_FALSE(f.doc.empty());
    EXPECT_NE(docs.find("| `" + std::string(f.key) + "` |"), docs.npos) << f.name();
  }
}

TEST(ModelJson, ReadsGoldenMetadata) {
  models::ModelConfig m = model_from_json(
      R"({"family": "vit", "image": 32, "patch": 8, "dim": 64, "depth": 2, "heads": 4, "mlp": 128, "classes": 10})");
  EXPECT_EQ(m.name, "");
  EXPECT_EQ(m.image_w, 32);
  EXPECT_EQ(m.channels, 3);
  EXPECT_EQ(m.pool, "class");
  EXPECT_EQ(model_from_json(model_to_json(m)), m);
  m = model_from_json("{}");
  EXPECT_EQ(m.dim, 768);
  EXPECT_EQ(model_from_json(R"({"name": "vit_micro"})"), models::preset("vit_micro"));
  for (const models::Preset& p : models::presets())
    EXPECT_EQ(model_from_json(model_to_json(p.config)), p.config);
}

TEST(ModelJson, RefusesWithTheCodeOfWeights) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  for (const std::string& text : {std::string(""),
                                  std::string("{"),
                                  std::string("[]"),
                                  std::string("3"),
                                  std::string("null"),
                                  std::string("{\"depth\": \"x\"}"),
                                  std::string("{\"dpeth\": 4}"),
                                  std::string("{\"heads\": 5}"),
                                  std::string("{\"depth\": 18446744073709551615}"),
                                  std::string("{\"depth\": 1e400}"),
                                  std::string("{\"image\": [1,[2]]}"),
                                  std::string("{\"name\": \"vit\"}"),

                                  std::string("{\"family\": \"swin\", \"depth\": 2}"),
                                  std::string("{\"family\": \"swin\", \"heads\": 3}"),
                                  std::string("{\"family\": \"swin\", \"depths\": [2, 2]}"),
                                  std::string("{\"init\": \"w\"}"),
                                  std::string("{\"name\": \"\xff\"}"),
                                  std::string("{\"name\": 3}"),
                                  deep,
                                  "{\"depth\": " + deep + "}",
                                  std::string(2 << 20, ' ')}) {
    try {
      model_from_json(text);
      ADD_FAILURE() << text.substr(0, 60);
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 4) << e.what();
      expect_says(e.what(), "tessera.model: ");
    }
  }
  try {
    model_from_json(R"({"dpeth": 4, "image": -1})");
  } catch (const Error& e) {
    expect_says(e.what(), "there is no key model.dpeth; did you mean depth?");
    EXPECT_EQ(e.also.size(), 1u);
  }
  for (const auto& [text, says] : std::map<std::string, std::string>{
           {R"({"init": "w"})",
            "model.init is about a run, not about the model that a file holds; leave it out"},
           {R"({"int": "w"})", "there is no key model.int"},
           {"{\"depth\": 4", "expected JSON; it goes wrong at byte 12 of \"{\"depth\": 4\""},
           {R"({"depth": 1e400})", "a number in it is too large for any key"}})
    try {
      model_from_json(text);
    } catch (const Error& e) {
      expect_says(e.what(), says);
      EXPECT_EQ(std::string(e.what()).find("json.exception"), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find("did you mean init"), std::string::npos) << e.what();
    }
}

TEST(Docs, ConfigPageIsCurrent) {
  std::ifstream file(TESSERA_SOURCE_DIR "/docs/config.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(keys_markdown()), std::string::npos)
      << "docs/config.md is stale: put the output of `tessera config keys` below its introduction";
}

}  // namespace
}  // namespace tessera::config::print_test
