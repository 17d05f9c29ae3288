#include "comm/queue.h"

#include <exception>
#include <utility>

#include "base/check.h"

namespace tessera::comm {

class Queued final : public Operation {
 public:
  Queued(std::shared_ptr<Queue> queue, std::shared_ptr<Task> task)
      : queue_(std::move(queue)), task_(std::move(task)), exceptions_(std::uncaught_exceptions()) {}
  ~Queued() override {
    if (task_->complete_) return;
    try {
      if (std::uncaught_exceptions() > exceptions_) {
        queue_->drop();
        return;
      }
      wait();
    } catch (...) {  // whoever starts or waits next hears of it
      queue_->drop();
    }
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;

  bool done() override {
    if (task_->complete_) return true;
    queue_->engine_->step();
    return queue_->complete(*task_);
  }
  void wait() override {
    if (!task_->complete_) queue_->engine_->wait([this] { return queue_->complete(*task_); });
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Task> task_;
  int exceptions_;
};

Pending Queue::start(std::shared_ptr<Task> task) {
  complete(*task);  // throws when the queue is broken
  tasks_.push_back(task);
  engine_->add(*this);
  return std::make_unique<Queued>(shared_from_this(), std::move(task));
}

bool Queue::complete(const Task& task) const {
  if (!task.complete_ && broken_)
    throw Error(ErrorKind::rank_lost, "an error ended an earlier operation of this group");
  return task.complete_;
}

void Queue::drop() {
  broken_ = true;
  tasks_.clear();
  engine_->remove(*this);
}

bool Queue::advance() {
  bool worked = false;
  while (!tasks_.empty()) {
    const std::shared_ptr<Task> task = tasks_.front();
    const Task::State state = task->advance();
    worked |= state != Task::State::waiting;
    if (state != Task::State::complete) break;
    task->complete_ = true;
    tasks_.pop_front();
  }
  if (tasks_.empty()) engine_->remove(*this);
  return worked;
}

}  // namespace tessera::comm
