#include "actors/outbox/journal_files.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace openshell::supervisor {
namespace {

constexpr std::string_view kSuffix = ".journal";
constexpr std::string_view kBadSuffix = ".bad";
constexpr std::size_t kNameDigits = 16;
constexpr std::size_t kMaxReadBytes = 8U << 20;  // above any file of ours: marks of done may follow a full one

std::string name_of(std::uint64_t first) { return fmt::format("{:016x}{}", first, kSuffix); }

std::optional<std::uint64_t> first_of(std::string_view name) {
  if (name.size() != kNameDigits + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + kNameDigits, out, 16);
  if (error != std::errc{} || end != name.data() + kNameDigits || name_of(out) != name || out > kMaxJournalSequence) return std::nullopt;
  return out;
}

}  // namespace

absl::Status JournalFiles::open() {
  if (open_) return absl::OkStatus();
  if (auto status = disk_->open(); !status.ok()) return status;
  auto names = disk_->list();
  if (!names.ok()) return names.status();
  std::sort(names->begin(), names->end());
  std::vector<std::pair<std::uint64_t, std::string>> ours;
  for (auto& name : *names) {
    if (const auto first = first_of(name)) ours.emplace_back(*first, name);
  }
  for (const auto& [first, name] : ours) {
    if (auto status = replay(name, first, name == ours.back().second); !status.ok()) {
      files_.clear();
      waiting_.clear();
      current_.clear();
      return status;
    }
  }
  open_ = true;
  replayed_ = waiting();
  remove_finished();
  return absl::OkStatus();
}

absl::Status JournalFiles::replay(const std::string& name, std::uint64_t first, bool newest) {
  next_seq_ = std::max(next_seq_, first);
  auto bytes = disk_->read(name, kMaxReadBytes);
  if (absl::IsResourceExhausted(bytes.status()) || absl::IsPermissionDenied(bytes.status())) return set_aside(name, 0);
  if (!bytes.ok()) return bytes.status();  // perhaps for now only: no descriptor is left, say
  auto content = read_journal(*bytes);
  const bool ours = content.has_head && content.first_seq == first;
  const auto bad_bytes = bytes->size() - (ours ? content.good_bytes : 0);
  File file{name, content.good_bytes, first - 1};
  if (ours) {
    for (const auto& entry : content.statuses) {
      file.last = entry.seq;
      next_seq_ = std::max(next_seq_, entry.seq + 1);
      if (entry.sandbox_id == sandbox_id_) {
        waiting_.insert(entry.seq);
      } else {
        spdlog::error("a policy status of another sandbox stood in the journal and is discarded [version:{}]", entry.status.revision.value);
      }
    }
    for (const auto& mark : content.done) waiting_.erase(mark.seq);
  }
  if (!ours) return set_aside(name, bad_bytes);  // nothing of it was taken
  bool whole = bad_bytes == 0;
  if (!whole) {
    if (newest && bad_bytes <= limits_.silent_cut) {
      spdlog::warn("the status journal ended in a torn record: {} bytes are cut", bad_bytes);
    } else {
      keep_bad_copy(name, bad_bytes);
    }
    whole = disk_->cut(name, content.good_bytes).ok();  // else it is read up to there and never appended to
  }
  if (newest && whole && file.bytes < limits_.file_bytes) current_ = name;
  files_.emplace(first, std::move(file));
  return absl::OkStatus();
}

absl::Status JournalFiles::set_aside(const std::string& name, std::size_t bad_bytes) {
  spdlog::error("the journal file '{}' is damaged ({} bytes) and set aside", name, bad_bytes);
  if (auto status = disk_->rename(name, name + std::string{kBadSuffix}); !status.ok()) return status;
  forget_old_bad();
  return absl::OkStatus();
}

void JournalFiles::keep_bad_copy(const std::string& name, std::size_t bad_bytes) {
  spdlog::error("the journal file '{}' is damaged: {} bytes are cut, a copy is kept", name, bad_bytes);
  if (auto status = disk_->copy(name, name + std::string{kBadSuffix}); !status.ok()) spdlog::error("{}", status.ToString());
  forget_old_bad();
}

void JournalFiles::forget_old_bad() {
  auto names = disk_->list();
  if (!names.ok()) return;
  std::erase_if(*names, [](const std::string& one) { return !one.ends_with(kBadSuffix); });
  std::sort(names->begin(), names->end());
  for (std::size_t i = 0; i + limits_.bad_files < names->size(); ++i) (void)disk_->remove((*names)[i]);
}

JournalFiles::Waiting JournalFiles::waiting() const {
  if (waiting_.empty()) return {};
  return {*waiting_.begin(), *waiting_.rbegin(), waiting_.size()};
}

absl::Status JournalFiles::rotate() {
  if (files_.size() >= limits_.files)
    return absl::ResourceExhaustedError(fmt::format("the status journal is full: {} files", files_.size()));
  const auto name = name_of(next_seq_);
  if (auto status = disk_->create(name, journal_head(next_seq_)); !status.ok()) {
    ++next_seq_;                // that name may exist by now
    (void)disk_->remove(name);  // what was made of it is a stray to the next start
    return status;
  }
  files_.emplace(next_seq_, File{name, kJournalHeadBytes, next_seq_ - 1});
  current_ = name;
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> JournalFiles::append(const std::vector<PolicyStatus>& statuses) {
  if (auto status = open(); !status.ok()) return status;
  if (statuses.empty()) return next_seq_;
  std::string bytes;
  for (std::size_t i = 0; i < statuses.size(); ++i)
    bytes += journal_record(JournalStatus{next_seq_ + i, sandbox_id_, generation_, statuses[i]});
  if (!current_.empty()) {
    const auto& file = files_.rbegin()->second;
    if (file.bytes + bytes.size() > limits_.file_bytes && file.bytes > kJournalHeadBytes) current_.clear();
  }
  if (current_.empty()) {
    const auto expected = next_seq_;
    if (auto status = rotate(); !status.ok()) return status;
    if (next_seq_ != expected) return absl::InternalError("the status journal could not be continued");
  }
  auto& file = files_.rbegin()->second;
  const auto first = next_seq_;
  next_seq_ += statuses.size();
  file.last = next_seq_ - 1;
  if (auto status = disk_->append(file.name, bytes, true); !status.ok()) {
    current_.clear();  // whatever of it arrived, nothing is written behind it
    remove_finished();
    return status;
  }
  file.bytes += bytes.size();
  for (std::size_t i = 0; i < statuses.size(); ++i) waiting_.insert(waiting_.end(), first + i);
  return first;
}

absl::Status JournalFiles::done(std::uint64_t seq, bool delivered) {
  if (!open_) return absl::FailedPreconditionError("the status journal is not open");
  waiting_.erase(seq);
  absl::Status status;
  if (!current_.empty()) {
    const auto bytes = journal_record(JournalDone{seq, delivered});
    status = disk_->append(current_, bytes, false);
    if (status.ok()) {
      files_.rbegin()->second.bytes += bytes.size();
    } else {
      current_.clear();
    }
  }
  remove_finished();
  return status;
}

bool JournalFiles::has_waiting(std::uint64_t first, std::uint64_t last) const {
  const auto found = waiting_.lower_bound(first);
  return found != waiting_.end() && *found <= last;
}

/// Oldest first: a mark may stand in a later file than its status, and a status must not come back without it.
void JournalFiles::remove_finished() {
  while (!files_.empty()) {
    const auto& [first, file] = *files_.begin();
    if (file.name == current_ || has_waiting(first, file.last)) return;
    if (auto status = disk_->remove(file.name); !status.ok()) {
      spdlog::warn("{}", status.ToString());
      return;
    }
    files_.erase(files_.begin());
  }
}

absl::StatusOr<std::vector<std::pair<std::uint64_t, PolicyStatus>>> JournalFiles::read(std::uint64_t from) {
  if (auto status = open(); !status.ok()) return status;
  std::vector<std::pair<std::uint64_t, PolicyStatus>> out;
  for (auto& [first, file] : files_) {
    if (file.last < from || !has_waiting(std::max(first, from), file.last)) continue;
    auto bytes = disk_->read(file.name, kMaxReadBytes);
    if (!bytes.ok()) return bytes.status();
    auto content = read_journal(*bytes);
    for (auto& entry : content.statuses) {
      if (entry.seq < from || !waiting_.contains(entry.seq)) continue;
      out.emplace_back(entry.seq, std::move(entry.status));
      if (out.size() == limits_.read_back) return out;
    }
    // What should have been in this file and could not be read is gone; those behind it are not held up.
    const auto got = out.empty() ? from : out.back().first + 1;
    for (auto at = waiting_.lower_bound(std::max(first, got)); at != waiting_.end() && *at <= file.last;) {
      spdlog::error("a policy status is lost in a damaged journal [sequence:{}]", *at);
      ++lost_;
      at = waiting_.erase(at);
    }
    if (!out.empty()) return out;
  }
  return out;
}

}  // namespace openshell::supervisor
