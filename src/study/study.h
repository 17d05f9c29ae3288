// `tessera study` and `tessera report`: a grid of runs, each a process of its own, resumable at any
// moment; and pages of what they left.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::study {

struct StudyOptions {
  std::string file, out;          // out "": runs/study-NAME
  std::vector<std::string> only;  // parts; empty: all
  bool json = false, quiet = false;
  bool fresh = false;        // forget what was run
  bool retry = false;        // runs that failed once more
  bool list = false;         // only say what would run
  std::string command = {};  // what makes the whole study, for the page
  std::string binary = {};   // of tessera; "": this program
  // Why a device cannot be used on this machine, in a sentence; "" (and no function): it can.
  std::function<std::string(const std::string& device)> missing = {};
};
// 0: every run is done that can be made on this machine; 1: some failed; 75: stopped on request,
// the same command goes on.
int study(const StudyOptions& options);

struct ReportOptions {
  std::vector<std::string> folders;  // one; two studies, or any number of runs, to compare
  std::string out;                   // "": into the first folder
  std::string format = "html";       // html | md
  bool watch = false, json = false;
};
int make_report(const ReportOptions& options);

}  // namespace tessera::study
