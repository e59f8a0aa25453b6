#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/process_session.hpp"

namespace openshell::supervisor {

/// Tells the boundary the size of one terminal. One request at a time, since two on their way could overtake each other; of the sizes that
/// come meanwhile only the newest is sent. Any thread.
class TerminalResizer : public std::enable_shared_from_this<TerminalResizer> {
 public:
  TerminalResizer(std::shared_ptr<BoundaryClient> boundary, std::string process_id)
      : boundary_{std::move(boundary)}, process_id_{std::move(process_id)} {}

  void resize(TerminalSize size) {
    {
      const std::lock_guard lock{mutex_};
      next_ = size;
      if (std::exchange(asking_, true)) return;
    }
    ask();
  }

 private:
  void ask() {
    TerminalSize size;
    {
      const std::lock_guard lock{mutex_};
      if (!next_) {
        asking_ = false;
        return;
      }
      size = *std::exchange(next_, std::nullopt);
    }
    boundary_->call(boundary::Resize{process_id_, static_cast<std::uint16_t>(size.columns), static_cast<std::uint16_t>(size.rows)},
                    kCallDeadline, [self = shared_from_this()](const absl::StatusOr<Opened>&) { self->ask(); });
  }

  const std::shared_ptr<BoundaryClient> boundary_;
  const std::string process_id_;
  std::mutex mutex_;
  std::optional<TerminalSize> next_;
  bool asking_ = false;
};

}  // namespace openshell::supervisor
