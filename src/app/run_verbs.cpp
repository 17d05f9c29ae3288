#include <memory>

#include "app/arguments.h"
#include "app/verbs.h"
#include "compile/pipeline.h"
#include "ranks/launch.h"
#include "train/train.h"
#include "verbs/verbs.h"

namespace tessera::app {

CLI::App* add_verb(CLI::App& app, const char* name, const char* help, bool& json) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_flag("--json", json, "print one JSON document on stdout");
  return verb;
}

void add_train_verb(CLI::App& app, char** argv, bool& json, int& code) {
  struct Given {
    ConfigArguments config;
    run::TrainOptions options;
  };
  const auto given = std::make_shared<Given>();
  CLI::App* verb = add_verb(
      app, "train", "train a model; goes on from the newest checkpoint of its run folder", json);
  given->config.add_to(*verb);
  verb->add_flag("--fresh", given->options.fresh, "start over even if the run folder holds a run");
  verb->add_flag("--quiet", given->options.quiet, "no progress on stderr");
  verb->callback([given, argv, &json, &code] {
    run::TrainOptions& train = given->options;
    train.given = given->config.path;
    train.json = json;
    // Ranks that a launcher started are counted; alone, the configuration says how many to start.
    const bool speaks = run::says_notes();
    const config::Config c = run::as_launched(given->config.load(
        config::Purpose::train, run::asked_ranks(), speaks && !train.quiet, speaks));
    run::check_schedule(c);
    code = run::on_ranks(
        c, argv, [&](comm::Comm* world) { return run::train(c, train, world); }, true);
  });
}

void add_eval_verb(CLI::App& app, char** argv, bool& json, int& code) {
  struct Given {
    WeightsArguments weights;
    run::EvalOptions eval;
  };
  const auto given = std::make_shared<Given>();
  run::EvalOptions& eval = given->eval;
  CLI::App* verb = add_verb(app, "eval", "loss, top-1, top-5 and a table per class", json);
  given->weights.add_to(*verb, eval);
  verb->add_option(
          "--data", eval.data,
          "synthetic | synthetic:HxWxC,CLASSES | cifar10:DIR | cifar100:DIR | folder:DIR | npy:DIR")
      ->required()
      ->type_name("SPEC");
  verb->add_option("--batch,--batch-size", eval.batch, "images at a time, of all ranks together")
      ->check(CLI::Range(1, 65536));
  verb->add_option("--seed", eval.seed,
                   "seed of synthetic data, and of the part of a folder that is kept for testing");
  verb->add_option("--val-fraction", eval.val_fraction, "that part's size")
      ->check(CLI::Range(0.0, 0.999));
  verb->add_option("--test-size", eval.test_size, "images of synthetic data")
      ->check(CLI::Range(1, 100000000));
  verb->add_option(
          "--tta", eval.tta,
          "flip: also report top-1 of the mean prediction of each image and its mirror image")
      ->check(CLI::IsMember({"none", "flip"}));
  verb->callback([given, argv, &json, &code] {
    given->weights.apply_to(given->eval);
    given->eval.json = json;
    code = run::evaluate(given->eval, argv);
  });
}

void add_predict_verb(CLI::App& app, char** argv, bool& json, int& code) {
  struct Given {
    WeightsArguments weights;
    run::PredictOptions predict;
  };
  const auto given = std::make_shared<Given>();
  run::PredictOptions& predict = given->predict;
  CLI::App* verb = add_verb(
      app, "predict",
      "the likeliest labels of each image: a line on a terminal, JSON lines in a pipe", json);
  given->weights.add_to(*verb, predict);
  verb->add_option("IMAGE", predict.images, "PNG, JPEG or .npy files")->required();
  verb->add_option("--top", predict.top, "how many labels")->check(CLI::Range(1, 1000));
  verb->add_flag("--logits", predict.logits, "JSON: also the logits of every class");
  verb->add_option("--batch,--batch-size", predict.batch,
                   "images at a time, of all ranks together (8, or one for each dp rank)")
      ->check(CLI::Range(1, 65536));
  verb->callback([given, argv, &json, &code] {
    given->weights.apply_to(given->predict);
    given->predict.json = json;
    given->predict.table = run::prints_to_terminal();
    code = run::predict(given->predict, argv);
  });
}

void add_quantize_verb(CLI::App& app, char**, bool& json, int& code) {
  struct Given {
    WeightsArguments weights;
    run::QuantizeOptions quantize;
  };
  const auto given = std::make_shared<Given>();
  run::QuantizeOptions& quantize = given->quantize;
  CLI::App* verb = add_verb(
      app, "quantize",
      "weights whose linear layers and convolutions run in one byte, calibrated on images", json);
  given->weights.add_to(*verb, quantize, {"--threads", "--device"});
  verb->add_option("--data", quantize.data,
                   "the images whose activations are measured: the training part of cifar10:DIR | "
                   "cifar100:DIR | folder:DIR | npy:DIR | synthetic...")
      ->required()
      ->type_name("SPEC");
  verb->add_option("--out", quantize.out, "the file to write (.safetensors)")
      ->required()
      ->type_name("FILE");
  verb->add_option("--dtype", quantize.as,
                   "int8: a scale per output channel; fp8: e4m3 with a scale per tensor, of linear "
                   "layers, for cards")
      ->check(CLI::IsMember({"int8", "fp8"}))
      ->capture_default_str();
  verb->add_option("--samples", quantize.samples, "so many images, drawn at random")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  verb->add_option("--batch,--batch-size", quantize.batch, "images at a time")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  verb->add_option("--eval", quantize.eval, "also score both on the test images of this data")
      ->type_name("SPEC");
  verb->callback([given, &json, &code] {
    given->weights.apply_to(given->quantize);
    given->quantize.json = json;
    code = run::quantize(given->quantize);
  });
}

void add_verify_verb(CLI::App& app, char**, bool& json, int& code) {
  const auto given = std::make_shared<run::VerifyOptions>();
  CLI::App* verb = add_verb(app, "verify",
                            "compare forward and backward with another framework's numbers", json);
  verb->add_option("GOLDEN", given->golden, "a safetensors file made by tools/make_goldens.py")
      ->required();
  verb->add_option("--dtype", given->dtype, "f64 | f32 | bf16 | f16 (default: as stored)")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "f64"}));
  verb->add_option("--threads", given->threads, "cores to use (default: all)")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--device", given->device, "cpu or cuda");
  verb->callback([given, &json, &code] {
    given->json = json;
    code = run::verify(*given);
  });
}

}  // namespace tessera::app
