// Operations that are made of several messages or stages, run one at a time in the order of their
// start: so all ranks of the groups below start the same things in the same order, whenever each of
// them looks.
#pragma once

#include <deque>
#include <memory>

#include "comm/progress.h"

namespace tessera::comm {

class Task {
 public:
  virtual ~Task() = default;
  enum class State { waiting, worked, complete };
  virtual State advance() = 0;  // never blocks

 private:
  friend class Queue;
  friend class Queued;
  bool complete_ = false;
};

class Queue final : public Advancing, public std::enable_shared_from_this<Queue> {
 public:
  explicit Queue(SharedEngine engine) : engine_(std::move(engine)) {}
  ~Queue() override { engine_->remove(*this); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Pending start(std::shared_ptr<Task> task);
  bool advance() override;

 private:
  friend class Queued;
  SharedEngine engine_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool broken_ = false;  // an error ended one of them

  bool complete(const Task& task) const;
  void drop();
};

}  // namespace tessera::comm
