// The verbs: what main() calls. Each does its job, prints data on stdout (one JSON document with
// `json`) and messages on stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "config/config.h"
#include "config/flags.h"
#include "train/train.h"

namespace tessera::run {

// Weights that are run as they are: on as many ranks as the overrides ask for, started as those of
// a training (launch.h; `argv`: the command line).
struct WeightsOptions {
  std::string weights;
  // Changes of the configuration that they are run with. Keys of the model describe weights that do
  // not name theirs and may not contradict others.
  std::vector<config::Override> overrides;
  bool json = false;
};

struct EvalOptions : WeightsOptions {
  std::string data, tta;  // tta "": not given
  std::int64_t batch = 128;
  // Which images are scored; not given (also test_size 0, val_fraction below 0): as keys say, else
  // as the run that trained the weights did.
  std::optional<std::int64_t> seed;
  std::int64_t test_size = 0;
  double val_fraction = -1;
};
int evaluate(const EvalOptions& options, char** argv);

struct PredictOptions : WeightsOptions {  // json: one document instead of a line per image
  std::vector<std::string> images;
  std::int64_t top = 5,
               batch = 0;  // images at a time; 0: 8, or one for each dp rank where there are more
  bool table = false;      // lines for people instead of JSON
  bool logits = false;     // also what the classifier gave, for every class
};
int predict(const PredictOptions& options, char** argv);

struct QuantizeOptions : WeightsOptions {
  std::string data, eval, out;  // eval "": nothing is scored
  std::string as = "int8";      // int8 | fp8
  std::int64_t samples = 256, batch = 16;
};
int quantize(const QuantizeOptions& options);

struct VerifyOptions {
  std::string golden, dtype;  // dtype "": as the golden was stored
  std::int64_t threads = 0;
  bool json = false;
  std::string device = "cpu";
};
struct Comparison {
  std::string name;
  double error = 0, tolerance = 0;  // norm of the difference over norm of the reference
  bool ok() const { return error <= tolerance; }  // NaN never passes
};
std::vector<Comparison> compare_golden(const VerifyOptions& options);
int verify(const VerifyOptions& options);  // prints the comparison; 0 only when every tensor is
                                           // within tolerance, else 1

struct BenchOptions {
  std::string what = "infer";  // infer | layers | train | ops | gemm | data | comm | offload
  std::int64_t batch = 8, repeats = 0;  // 0: until two seconds are spent
  std::string filter;                   // ops, gemm: only names that contain it
  std::string split = "train";          // data: train | test, each with its transforms
  std::string verb = "all_reduce";      // comm: all_reduce | reduce_scatter | all_gather
  std::int64_t min_bytes = 8, max_bytes = 256 << 20;  // comm: of a message; offload: of a moment
  int machines = 1;                                   // comm: pretend that the ranks are on so many
  bool elsewhere = false;                             // comm: buffers that other ranks cannot reach
  std::string weights;                                // infer: those of a file; "": initial ones
  bool compare_threading = false;                     // layers: by every way of run.threading
  bool check = false;  // infer: also the largest difference of the logits from those of one rank
  bool json = false;
};
// The configuration of weights that are measured: their model, and whether they are quantised.
void take_model(config::Config& config, const std::string& weights);
int bench(const config::Config& config, const BenchOptions& options,
          comm::Comm* world = nullptr);  // infer, train, ops; as train()
int bench_layers(const config::Config& config, const BenchOptions& options);  // of one rank
int bench_gemm(const config::Config& config, const BenchOptions& options);    // of one rank
int bench_data(const config::Config& config, const BenchOptions& options);
int bench_offload(const config::Config& config, const BenchOptions& options);  // of one rank
int bench_comm(const BenchOptions& options,
               comm::Comm& world);  // on every rank of a world that no algorithm was chosen for

struct ExplainOptions {
  std::string goal = "train";  // train | infer
  std::string dump_passes;
  std::vector<std::string> disabled;
  std::string run;  // a run folder whose trace shows the pipeline as it was; "": only predicted
  std::string schedule_svg;  // the pipeline's picture; "": none
  int rank = 0;              // whose plan, messages and memory are shown
  bool before = false;       // also the program before it was placed
  bool program = true, plan = false, json = false;
};
int explain(const config::Config& config, const ExplainOptions& options);

struct DataGetOptions {
  std::string name,
      out = "data";  // cifar10 | cifar100, and the folder that receives the set's own folder
  std::string url, md5, sha256;  // "": the published archive
  bool json = false;
};
int data_get(const DataGetOptions& options);
// Read every image of both splits of config.data.source. verify: 3 when one is bad.
int data_verify(const config::Config& config, bool json);
int data_stats(const config::Config& config, bool json);

// tessera ckpt ls | verify | export | diff. A path is a run folder (its newest valid checkpoint) or
// a checkpoint; export and diff also take weight files and exported folders.
struct CkptOptions {
  std::string path, other;         // other: diff
  std::string out;                 // export
  std::string naming = "tessera";  // tessera | torchvision | timm | hf
  std::string dtype = "f32";       // f32 | f64; of ONNX f32 | bf16 | f16
  bool onnx = false;               // export: a graph instead of tensors
  bool preprocess = false;         // export: the graph normalises pixels
  bool best = false;               // export: the best instead of the newest
  bool json = false;
};
int ckpt_list(const CkptOptions& options);
int ckpt_verify(const CkptOptions& options);  // 0 only when every hash fits, else 4
int ckpt_export(const CkptOptions& options);
int ckpt_diff(const CkptOptions& options);  // 0 equal, 1 different

int list_models(bool json);

// Prints this build's version; `verbose`: also the cores, driver, cards and libraries found here.
int print_version(bool verbose, bool json);

// One rank on each host of the file, or `ranks` on this machine: what it has, whether all have the
// same, and how fast they talk. 0: nothing has to be mended, else 1.
struct DoctorOptions {
  std::string hostfile, folder = ".";  // folder: where a run would be
  int ranks = 2;
  bool json = false;
};
int doctor(const DoctorOptions& options, char** argv);

}  // namespace tessera::run
