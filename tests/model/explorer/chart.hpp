#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace openshell::model {

/// What happened in one schedule, as a message-sequence chart in plain text: a column a participant, time downwards.
class Chart {
 public:
  using Time = std::chrono::milliseconds;

  void message(Time at, std::string from, std::string to, std::string label) {
    rows_.push_back({at, std::move(from), std::move(to), std::move(label)});
  }
  /// Something that happens to one participant, or to the world (empty).
  void note(Time at, std::string where, std::string text) { rows_.push_back({at, std::move(where), {}, std::move(text)}); }

  [[nodiscard]] std::string draw() const;
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }

 private:
  struct Row {
    Time at;
    std::string from;
    std::string to;  // empty: a note
    std::string label;
  };
  std::vector<Row> rows_;
};

}  // namespace openshell::model
