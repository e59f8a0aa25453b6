// Runs a libFuzzer target under a compiler that has no libFuzzer: every file of the corpus first, then mutations of it until the runs are
// done or the time is up. Arguments as libFuzzer's: [-max_total_time=SECONDS] [-seed=N] [-runs=N] CORPUS... The same seed and corpus give
// the same inputs in the same order; the corpus is read sorted by name. Without a seed one is drawn and printed. A crash leaves the input
// in crash-input and the seed on stderr.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kLongestInput = 65'536;
Bytes current;  // what is running: written out by the crash handler

void on_crash(int signal) {
  if (FILE* out = std::fopen("crash-input", "wb")) {
    std::fwrite(current.data(), 1, current.size(), out);
    std::fclose(out);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(Bytes input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

Bytes mutate(const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  auto pick = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  Bytes bytes = corpus[pick(corpus.size())];
  static constexpr std::uint8_t kEdges[] = {0x00, 0xff, 0x7f, 0x80, '\r', '\n', ':', ' ', '%', '/', '.', '"', '{', '['};
  for (auto rounds = 1 + pick(6); rounds > 0; --rounds) {
    const auto at = static_cast<std::ptrdiff_t>(pick(bytes.size() + 1));
    switch (pick(6)) {
      case 0:
        if (!bytes.empty()) bytes[pick(bytes.size())] ^= static_cast<std::uint8_t>(1U << pick(8));
        break;
      case 1:
        bytes.insert(bytes.begin() + at, kEdges[pick(sizeof kEdges)]);
        break;
      case 2:
        bytes.insert(bytes.begin() + at, static_cast<std::uint8_t>(random()));
        break;
      case 3:
        bytes.erase(bytes.begin() + at,
                    bytes.begin() + at + static_cast<std::ptrdiff_t>(pick(bytes.size() - static_cast<std::size_t>(at) + 1)));
        break;
      case 4: {  // splice a piece of another input in
        const auto& other = corpus[pick(corpus.size())];
        const auto from = pick(other.size() + 1);
        const auto length = pick(other.size() - from + 1);
        bytes.insert(bytes.begin() + at, other.begin() + static_cast<std::ptrdiff_t>(from),
                     other.begin() + static_cast<std::ptrdiff_t>(from + length));
        break;
      }
      default:
        if (!bytes.empty()) bytes[pick(bytes.size())] = kEdges[pick(sizeof kEdges)];
        break;
    }
  }
  if (bytes.size() > kLongestInput) bytes.resize(kLongestInput);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  auto budget = std::chrono::seconds{30};
  std::uint64_t seed = std::random_device{}(), wanted_runs = UINT64_MAX;
  std::vector<Bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-max_total_time=")) {
      budget = std::chrono::seconds{std::stol(argument.substr(16))};
    } else if (argument.starts_with("-seed=")) {
      seed = std::stoull(argument.substr(6));
    } else if (argument.starts_with("-runs=")) {
      wanted_runs = std::stoull(argument.substr(6));
    } else {
      std::vector<std::filesystem::path> paths;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argument)) {
        if (entry.is_regular_file()) paths.push_back(entry.path());
      }
      std::sort(paths.begin(), paths.end());
      for (const auto& path : paths) {
        std::ifstream file{path, std::ios::binary};
        corpus.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
      }
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus: name a folder that holds at least one input\n");
    return 2;
  }
  std::fprintf(stderr, "%zu inputs, seed %llu\n", corpus.size(), static_cast<unsigned long long>(seed));
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_crash);
  for (const auto& input : corpus) run(input);
  std::mt19937_64 random{seed};
  const auto end = std::chrono::steady_clock::now() + budget;
  std::uint64_t runs = 0;
  while (runs < wanted_runs && std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 64 && runs < wanted_runs; ++i, ++runs) run(mutate(corpus, random));
  }
  std::fprintf(stderr, "%llu runs, no crash\n", static_cast<unsigned long long>(runs));
  return 0;
}
