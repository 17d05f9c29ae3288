// The fp16 block of a DeepSpeed file: f16 and its loss scale.
#include <gtest/gtest.h>

#include "config/reader.h"

namespace tessera::config::deepspeed_fp16_test {
namespace {

Loaded read(std::string_view json) {
  return load_inputs({"", "t.toml", json, "ds.json", {}, Purpose::other, 1});
}
std::string notes(const Loaded& loaded) { return join(loaded.notes, "\n"); }
const Effective& row(const Loaded& loaded, std::string_view key) {
  static const Effective none;
  for (const Effective& e : loaded.deepspeed)
    if (e.key == key) return e;
  ADD_FAILURE() << "no row " << key;
  return none;
}

// DeepSpeed's own defaults where its block is silent, ours where there is none.
TEST(DeepSpeedFp16, MapsToTheLossScale) {
  const Precision quiet =
      read(R"({"train_batch_size": 4, "fp16": {"enabled": true}})").config.precision;
  EXPECT_EQ(quiet.dtype, "f16");
  EXPECT_EQ(quiet.loss_scale, 0);
  EXPECT_EQ(quiet.initial_scale_power, 16);
  EXPECT_EQ(quiet.loss_scale_window, 1000);
  EXPECT_EQ(quiet.hysteresis, 2);
  EXPECT_EQ(quiet.min_loss_scale, 1);
  const Loaded l = read(R"({"train_batch_size": 4, "fp16": {"enabled": true, "auto_cast": false,
    "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
    "consecutive_hysteresis": false, "min_loss_scale": 2}})");
  EXPECT_EQ(l.config.precision.initial_scale_power, 12);
  EXPECT_EQ(l.config.precision.loss_scale_window, 500);
  EXPECT_EQ(l.config.precision.hysteresis, 3);
  EXPECT_EQ(l.config.precision.min_loss_scale, 2);
  EXPECT_EQ(row(l, "precision.dtype").deepspeed, "fp16.enabled");
  EXPECT_EQ(row(l, "precision.hysteresis").value, "3");
  EXPECT_EQ(notes(l), "");
  const std::string said = notes(read(R"({"train_batch_size": 4, "fp16": {"enabled": true,
    "consecutive_hysteresis": true}})"));
  EXPECT_NE(said.find("fp16.consecutive_hysteresis is not supported and is ignored"),
            std::string::npos)
      << said;
  EXPECT_EQ(read(R"({"train_batch_size": 4, "fp16": {"enabled": true, "loss_scale": 128}})")
                .config.precision.loss_scale,
            128);
  // Without f16 the block says nothing.
  const Precision off =
      read(R"({"train_batch_size": 4, "fp16": {"enabled": false, "hysteresis": 7}})")
          .config.precision;
  EXPECT_EQ(off, Precision{});
}

}  // namespace
}  // namespace tessera::config::deepspeed_fp16_test
