#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "isolation/file_descriptor.hpp"

namespace openshell::supervisor {

/// The way of other threads to the one thread of an SSH connection: work in order, and a descriptor that is readable while there is some.
/// It outlives the connection; what is posted afterwards is never run.
class Inbox {
 public:
  Inbox();
  void post(std::function<void()> work);
  /// From the connection's thread: everything that waits.
  std::vector<std::function<void()>> take();
  /// Nothing is kept from now on.
  void close();
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  const isolation::FileDescriptor event_;
  std::mutex mutex_;
  std::vector<std::function<void()>> work_;
  bool closed_ = false;
};

}  // namespace openshell::supervisor
