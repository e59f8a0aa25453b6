// A journal file as a bad disk left it: reading never crashes and stops at the first byte that is wrong; what it gives can be written and
// read again; a journal opens over it, replays in order, and goes on.
#include <spdlog/spdlog.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "actors/outbox/journal_files.hpp"
#include "tests/model/explorer/memory_disk.hpp"

namespace {

using namespace openshell::supervisor;
namespace model = openshell::model;

void require(bool held) {
  if (!held) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spdlog::set_level(spdlog::level::off);
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto content = read_journal(bytes);
  require(content.good_bytes <= size);
  require(content.has_head || content.statuses.empty());
  std::string again = journal_head(content.first_seq);
  for (std::size_t i = 0; i < content.statuses.size(); ++i) {
    require(i == 0 || content.statuses[i - 1].seq < content.statuses[i].seq);
    again += journal_record(content.statuses[i]);
  }
  if (content.has_head) require(read_journal(again).statuses.size() == content.statuses.size());

  auto image = std::make_shared<model::DiskImage>();
  image->files["0000000000000001.journal"] = {std::string{bytes}, {}};
  image->files["0000000000000002.journal"] = {std::string{bytes.substr(size / 2)}, {}};
  JournalFiles files{std::make_unique<model::MemoryDisk>(image), "sb", "g"};
  require(files.open().ok());
  const auto first = files.append({{openshell::Revision{1}, PolicyOutcome::loaded, {}, Acknowledgement::initial}});
  require(first.ok());
  bool found = false;
  for (std::uint64_t from = 0;;) {
    const auto read = files.read(from);
    require(read.ok());
    if (read->empty()) break;
    for (const auto& [seq, status] : *read) {
      require(seq >= from);
      from = seq + 1;
      found = found || seq == *first;
      require(files.done(seq, true).ok());
    }
  }
  require(found && files.waiting().count == 0);
  return 0;
}
