// SPDX-License-Identifier: MIT
// The training step of llm.c's train_gpt2.c as a peer of bench_train_step: random weights, one batch of random tokens. Of
// llm.c nothing is here; it is named when this is compiled:
//
//     cc -Ofast -fopenmp -march=native -Wno-unused-result -I LLMC -DLLMC='"train_gpt2.c"' bench/peers/llmc_step.c -o llmc_step -lm
//     bench_train_step --llmc ./llmc_step --filter "B=4 T=64 bf16"
#define TESTING
#include LLMC

#include <omp.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static GPT2 model;
static int *tokens, *targets;
static int batch, length, steps;

static void prepare(char* line) {
    char key[32];
    int value, used;
    memset(&model, 0, sizeof model);
    for (; sscanf(line, "%31s %d%n", key, &value, &used) == 2; line += used) {
        if (!strcmp(key, "layers")) model.config.num_layers = value;
        if (!strcmp(key, "heads")) model.config.num_heads = value;
        if (!strcmp(key, "width")) model.config.channels = value;
        if (!strcmp(key, "vocabulary")) model.config.padded_vocab_size = model.config.vocab_size = value;
        if (!strcmp(key, "context")) model.config.max_seq_len = value;
        if (!strcmp(key, "batch")) batch = value;
        if (!strcmp(key, "length")) length = value;
    }
    fill_in_parameter_sizes(model.param_sizes, model.config);
    for (size_t i = 0; i < NUM_PARAMETER_TENSORS; i++) model.num_parameters += model.param_sizes[i];
    model.params_memory = malloc_and_point_parameters(&model.params, model.param_sizes);
    unsigned state = 1;
    for (size_t i = 0; i < model.num_parameters; i++) {
        state = state * 1664525u + 1013904223u;
        model.params_memory[i] = ((float)(state >> 8) / 16777216.0f - 0.5f) * 0.07f;
    }
    model.mean_loss = -1.0f;
    const int count = batch * length;
    tokens = mallocCheck((size_t)count * sizeof(int));
    targets = mallocCheck((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        tokens[i] = (int)((state >> 8) % model.config.vocab_size);
        state = state * 1664525u + 1013904223u;
        targets[i] = (int)((state >> 8) % model.config.vocab_size);
    }
}

static void step(void) {
    gpt2_forward(&model, tokens, targets, (size_t)batch, (size_t)length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.1f, ++steps);
}

int main(int argc, char** argv) {
    char line[512];
    FILE* const answers = fdopen(dup(1), "w");
    dup2(2, 1);  // what llm.c prints must not stand between the answers
    if (argc > 1) omp_set_num_threads(atoi(argv[1]));
    while (fgets(line, sizeof line, stdin)) {
        int times;
        if (sscanf(line, "run %d", &times) == 1) {
            const double begin = now();
            for (int i = 0; i < times; i++) step();
            fprintf(answers, "%.9f\n", now() - begin);
        } else {
            prepare(line);
            fprintf(answers, "ready\n");
        }
        fflush(answers);
    }
    return 0;
}
