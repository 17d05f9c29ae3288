// eval, predict and bench from outside: on several ranks the numbers of one, in the same form and
// order; keys that are heard; weights that cannot be served.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "app/binary.h"

namespace tessera::test::inference_test {
namespace {

const std::string pictures = TESSERA_SOURCE_DIR "/tests/golden/pictures/";

// A head that is not zero, so that no two images have the same logits.
const std::string& weights() {
  static const std::string folder = [] {
    const std::string out = (scratch() / "inference").string();
    const Result r = run("train" + tiny + on_device() +
                         "--set model.head_init=normal --steps 3 --quiet --fresh --out " + out);
    EXPECT_EQ(r.code, 0) << r.err;
    return out;
  }();
  return folder;
}

std::vector<json> lines(const Result& r) {
  std::vector<json> all;
  std::istringstream text(r.out);
  for (std::string line; std::getline(text, line);) all.push_back(json::parse(line));
  return all;
}

void expect_same_prediction(const json& a, const json& b) {
  EXPECT_EQ(a["file"], b["file"]);
  ASSERT_EQ(a["top"].size(), b["top"].size());
  for (std::size_t i = 0; i < a["top"].size(); ++i) {
    EXPECT_EQ(a["top"][i]["label"], b["top"][i]["label"]) << a["file"];
    EXPECT_NEAR(a["top"][i]["probability"].get<double>(), b["top"][i]["probability"].get<double>(),
                1e-6)
        << a["file"];
  }
}

// The weight file of the run, to be changed and written elsewhere.
struct WeightFile {
  json header;
  std::string data;

  WeightFile() {
    const std::string bytes = without_hash(read(fs::path(weights()) / "weights.safetensors"));
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    header = json::parse(bytes.substr(8, length));
    data = bytes.substr(8 + length);
  }
  void poison(const std::string& tensor, float value) {
    std::memcpy(&data[header.at(tensor)["data_offsets"][0].get<std::size_t>()], &value,
                sizeof(value));
  }
  std::string write_as(const std::string& name) const {
    const std::string path = (scratch() / name).string();
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = text.size();
    write(path, std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data);
    return path;
  }
};

TEST(Inference, EvalOnRanks) {
  // Batches of 8, 8 and 5, of which two ranks get 4 and 4, and 3 and 2.
  const std::string arguments =
      "eval" + on_device() +
      " --json --dtype f64 --threads 1 --data synthetic --test-size 21 --batch 8 --tta flip "
      "--weights ";
  const json one = json::parse(run(arguments + weights()).out);
  for (const std::string layout :
       {"--np 2", "--dp 1 --tp 2", "--sp 2",
        "--np 4 --tp 2 --set parallel.zero=3 --set parallel.persist=100"}) {
    const Result r = run(arguments + weights() + " --comm local " + layout);
    ASSERT_EQ(r.code, 0) << layout << "\n" << r.err;
    const json many = json::parse(r.out);
    EXPECT_NEAR(one["loss"].get<double>(), many["loss"].get<double>(), 1e-9) << layout;
    for (const char* key : {"images", "top1", "top5", "top1_tta", "classes"})
      EXPECT_EQ(one[key], many[key]) << layout << ": " << key;
  }
}

TEST(Inference, PredictOnRanks) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(pictures)) files.push_back(entry.path().string());
  ASSERT_GE(files.size(), 3u);
  files.resize(3);
  const std::string arguments =
      "predict" + on_device() + " --dtype f64 --threads 1 --weights " + weights() + " " + files[0];
  const std::string all = arguments + " " + files[1] + " " + files[2];
  std::vector<json> one;  // an image at a time
  for (const json& line : lines(run(all + " --batch 1"))) one.push_back(line);
  ASSERT_EQ(one.size(), 3u);
  std::vector<std::string> layouts = {"", "--np 2 --comm local --batch 2", "--tp 2 --comm local",
                                      "--np 4 --comm local"};
  if (has_mpirun()) layouts.push_back("--np 2 --comm mpi");
  for (const std::string& layout : layouts) {
    const Result r = run(all + " " + layout);
    const std::vector<json> many = lines(r);
    ASSERT_EQ(many.size(), 3u) << layout << "\n" << r.err;
    for (std::size_t i = 0; i < many.size(); ++i) expect_same_prediction(one[i], many[i]);
  }
  // One image: the second rank has none.
  const Result alone = run(arguments + " --json --np 2 --comm local");
  ASSERT_EQ(alone.code, 0) << alone.err;
  expect_same_prediction(one[0], json::parse(alone.out)[0]);
}

// The images before the one that cannot be read have their lines; the error is said once, by the
// rank that met it, and names all that cannot be read or are not there.
TEST(Inference, APictureThatCannotBeRead) {
  const std::string bad = (scratch() / "bad_picture.png").string(),
                    good = TESSERA_SOURCE_DIR "/tests/golden/disc.png",
                    worse = (scratch() / "worse_picture.png").string(),
                    gone = (scratch() / "gone_picture.png").string();
  write(bad, "not an image");
  write(worse, "");
  for (const std::string layout : {"", " --np 2 --comm local"}) {
    const Result r = run("predict --threads 1 --weights " + weights() + " " + good + " " + good +
                         " " + good + " " + bad + " " + good + " " + worse + " " + gone + layout);
    EXPECT_EQ(r.code, 3) << r.err;
    EXPECT_EQ(lines(r).size(), 3u) << r.out;
    EXPECT_NE(r.err.find("bad_picture.png"), std::string::npos) << r.err;
    EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
    for (const char* other : {"worse_picture.png", "gone_picture.png"}) {
      const std::size_t at = r.err.find(other);
      ASSERT_NE(at, std::string::npos) << other << "\n" << r.err;
      EXPECT_LT(r.err.rfind("also:", at), at) << other << "\n" << r.err;
    }
  }
}

TEST(Inference, BenchOnRanks) {
  struct Row {
    std::string arguments;
    int ranks;
    std::string verb;  // that these ranks cannot do without
  };
  const std::vector<Row> rows = {{"--model vit_micro --batch 3", 1, ""},
                                 {"--model vit_micro --batch 3 --np 2", 2, "all_gather"},
                                 {"--model vit_micro --batch 1 --np 2", 2, "all_gather"},
                                 {"--model vit_micro --batch 2 --np 4 --tp 2", 4, "all_reduce"},
                                 {"--model swin_micro --batch 2 --tp 2", 2, "all_reduce"},
                                 {"--model resnet_micro_cifar --batch 2 --tp 2", 2, "all_reduce"}};
  for (const Row& row : rows) {
    const Result r =
        run("bench infer --json --check --dtype f64 --threads 1 --repeats 1 --comm local " +
            row.arguments);
    ASSERT_EQ(r.code, 0) << row.arguments << "\n" << r.err;
    const json b = json::parse(r.out);
    for (const char* key : {"model", "batch", "dtype", "threads", "device", "ms", "images_per_s",
                            "gflops", "peak_gflops", "ops"})
      EXPECT_TRUE(b.contains(key)) << row.arguments << ": " << key;
    EXPECT_EQ(b["layout"]["ranks"], row.ranks) << row.arguments;
    double shares = 0, comm = 0;
    for (const json& op : b["ops"]) {
      shares += op["share"].get<double>();
      comm += op["group"] == "comm" ? op["ms"].get<double>() : 0;
    }
    EXPECT_NEAR(shares, 1, 1e-6) << row.arguments;
    EXPECT_EQ(comm > 0, row.ranks > 1) << row.arguments;
    for (const char* axis : {"dp", "tp", "sp", "pp"})
      EXPECT_TRUE(b["layout"].contains(axis)) << axis;
    ASSERT_TRUE(b["logits_difference"].is_number()) << row.arguments;
    EXPECT_LT(b["logits_difference"].get<double>(), 1e-9) << row.arguments;
    ASSERT_EQ(b["ranks"].size(), static_cast<std::size_t>(row.ranks));
    std::int64_t bytes = 0, peak = 0;
    for (const json& rank : b["ranks"]) {
      bytes = std::max(bytes, rank["comm_bytes"].get<std::int64_t>());
      peak = std::max(peak, rank["peak_bytes"].get<std::int64_t>());
    }
    EXPECT_EQ(b["peak_bytes"], peak);
    EXPECT_EQ(b["comm_bytes"]["total"], bytes);
    EXPECT_EQ(b["comm_bytes"].contains(row.verb), !row.verb.empty())
        << row.arguments << " " << b["comm_bytes"];
  }
  const Result text =
      run("bench infer --model vit_micro --batch 2 --threads 1 --repeats 1 --check --np 4 --tp 2 "
          "--comm local");
  for (const char* words : {"dp2 x tp2, 4 ranks x 1 thread:", "a rank hands over",
                            "logits differ from those of one rank by"})
    EXPECT_NE(text.out.find(words), std::string::npos) << text.out << text.err;
  const Result train = run(
      "bench train --model vit_micro --batch 3 --threads 1 --repeats 1 --np 2 --comm local --json");
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_GT(json::parse(train.out)["comm_bytes"]["all_reduce"].get<std::int64_t>(), 0);
}

// Every key but the model's is that of the configuration; what is said of the model must be what
// the weights say.
TEST(Inference, KeysAreHeard) {
  const std::string eval = "eval --json --threads 1 --data synthetic --weights " + weights() + " ";
  const auto number = [&](const std::string& arguments, const char* key) {
    const Result r = run(eval + arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
    return r.code == 0 ? json::parse(r.out)[key].get<double>() : std::nan("");
  };
  EXPECT_EQ(number("--set data.test_size=10", "images"), 10);
  EXPECT_EQ(number("--set data.test_size=10 --test-size 12", "images"), 12);
  EXPECT_EQ(number("", "images"), 32) << "as many as the run was tested on";
  const double loss = number("", "loss");
  EXPECT_NE(number("--set precision.dtype=bf16", "loss"), loss);
  EXPECT_NE(number("--set run.seed=5", "loss"), loss);
  EXPECT_NE(number("--set data.normalize=imagenet", "loss"), loss);
  EXPECT_EQ(number("--model vit_micro --set model.depth=1", "loss"), loss);
  EXPECT_FALSE(std::isnan(number("--set data.tta=flip", "top1_tta")));
  for (const auto& [arguments, words] :
       std::vector<std::pair<std::string, std::string>>{{"--model resnet50", "vit_micro"},
                                                        {"--set model.depth=2", "model.depth = 1"},
                                                        {"--set run.threads=many", "run.threads"},
                                                        {"--set data.source=synthetic", "--data"},
                                                        {"--set nonsense", "key=value"},
                                                        {"--seed -1", "run.seed"}}) {
    const Result r = run(eval + arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.err;
    EXPECT_NE(r.err.find(words), std::string::npos) << arguments << "\n" << r.err;
  }
}

// A run on synthetic images tells prediction to cut no margin off; a silent file is normalised by
// what a key says, else by what a note says.
TEST(Inference, ImagesArePreparedAsTheWeightsOrAKeySays) {
  WeightFile file;
  EXPECT_EQ(
      json::parse(file.header["__metadata__"]["tessera.preprocess"].get<std::string>())["resize"],
      0);
  file.header["__metadata__"].erase("tessera.model");
  file.header["__metadata__"].erase("tessera.preprocess");
  const std::string picture = TESSERA_SOURCE_DIR "/tests/golden/disc.png";
  const std::string predict =
      "predict --threads 1 --model vit_micro --set model.depth=1 --weights " +
      file.write_as("silent.safetensors") + " ";
  const Result assumed = run(predict + picture),
               said = run(predict + "--set data.normalize=imagenet " + picture);
  ASSERT_EQ(assumed.code + said.code, 0) << assumed.err << said.err;
  EXPECT_NE(assumed.err.find("assumed mean [0.5,0.5,0.5]"), std::string::npos) << assumed.err;
  EXPECT_EQ(said.err.find("assumed"), std::string::npos) << said.err;
  EXPECT_NE(json::parse(assumed.out)["top"], json::parse(said.out)["top"]);
}

// Numbers that mean nothing are not printed: the parameter that is to blame is named.
TEST(Inference, WeightsThatAreNotFinite) {
  const std::string picture = TESSERA_SOURCE_DIR "/tests/golden/disc.png";
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const std::string& verb : std::vector<std::string>{
             "eval --data synthetic", "eval --data synthetic --np 2 --comm local",
             "predict " + picture}) {
      WeightFile file;
      file.poison("encoder.ln.weight", bad);
      const Result r = run(verb + " --threads 1 --weights " + file.write_as("bad.safetensors"));
      EXPECT_EQ(r.code, 5) << verb << "\n" << r.err;
      EXPECT_TRUE(r.out.empty()) << verb << "\n" << r.out;
      EXPECT_NE(r.err.find("1 of the 64 elements of encoder.ln.weight"), std::string::npos)
          << verb << "\n"
          << r.err;
    }
}

// Flags that cannot be meant are refused once, before a rank starts.
TEST(Inference, WrongLayouts) {
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"eval --data synthetic --tp 3 --weights " + weights(), "does not divide model.heads"},
           {"eval --data synthetic --np 2 --dp 3 --weights " + weights(), "run.np = 2"},
           {"predict --np 2 --comm nccl x.png --weights " + weights(), "comm"},
           {"predict --dtype f8 x.png --weights " + weights(), "f8"},
           {"bench infer --model resnet_micro_cifar --sp 2", "sequence parallelism is for vit"},
           {"bench ops --model vit_micro --np 2", "run.np = 2"},
           {"bench train --model vit_micro --check", "there is no flag --check"}}) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.err;
    EXPECT_NE(r.err.find(words), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
    EXPECT_TRUE(r.out.empty()) << r.out;
  }
}

}  // namespace
}  // namespace tessera::test::inference_test
